//! The few statistics that are shown.

/// The value below which a part `q` (0 to 1) of the values lies, between two neighbours where it falls between them; NaN of nothing.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The one in the middle.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A median with the least and the greatest of what was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        let whole = !values.is_empty();
        whole.then(|| Self { median: median(values), least: quantile(values, 0.0), most: quantile(values, 1.0) })
    }

    /// Of the ratios round by round, so that a machine whose speed drifts does not decide.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let ratios: Vec<_> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

/// The quantiles 0, 1, ... 100 of 100: a distribution in as many numbers as a plot can show.
pub fn curve(values: &[f64]) -> Vec<f64> {
    if values.is_empty() {
        return Vec::new();
    }
    (0..=100).map(|percent| quantile(values, f64::from(percent) / 100.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), 2.5);
        assert_eq!((quantile(&values, 0.0), quantile(&values, 1.0)), (1.0, 4.0));
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let ratios = Spread::of_ratios(&[10.0, 40.0, 30.0], &[10.0, 80.0, 30.0]);
        assert_eq!(ratios, Some(Spread { median: 1.0, least: 0.5, most: 1.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_curve_rises() {
        let curve = curve(&[5.0, 1.0, 9.0]);
        assert_eq!((curve.len(), curve[0], curve[50], curve[100]), (101, 1.0, 5.0, 9.0));
        assert!(curve.is_sorted());
    }
}
