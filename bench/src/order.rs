//! What workers are told to do, as a line of text, so that programs in any language understand it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use conformance_tests::Stop;

/// Who wants what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each worker has a name of its own.
    Apart,
    /// All workers want the same name, again and again.
    Together,
    /// Two workers hand one name to each other: who has released asks again only when the other one holds.
    Turns,
}

/// One order: `MODE NAME WORKERS MILLISECONDS HOLD-IN-MICROSECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub mode: Mode,
    /// The name, or what the names of workers apart begin with.
    pub name: String,
    pub workers: usize,
    /// For how long locks are asked for.
    pub span: Duration,
    /// How long each grant is held.
    pub hold: Duration,
}

impl Order {
    /// The name that a worker asks for.
    pub fn name_of(&self, worker: usize) -> String {
        match self.mode {
            Mode::Apart => format!("{}-{worker}", self.name),
            Mode::Together | Mode::Turns => self.name.clone(),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Apart => "apart",
            Mode::Together => "together",
            Mode::Turns => "turns",
        };
        let Self { name, workers, span, hold, .. } = self;
        write!(f, "{mode} {name} {workers} {} {}", span.as_millis(), hold.as_micros())
    }
}

impl FromStr for Order {
    type Err = Stop;

    fn from_str(line: &str) -> Result<Self, Stop> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [mode, name, workers, millis, hold] = words[..] else {
            return Err(format!("not an order: '{line}'").into());
        };
        let mode = match mode {
            "apart" => Mode::Apart,
            "together" => Mode::Together,
            "turns" => Mode::Turns,
            _ => return Err(format!("no mode of orders: '{mode}'").into()),
        };
        Ok(Self {
            mode,
            name: name.to_owned(),
            workers: workers.parse()?,
            span: Duration::from_millis(millis.parse()?),
            hold: Duration::from_micros(hold.parse()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_the_line() -> Result<(), Stop> {
        let order = Order {
            mode: Mode::Turns,
            name: "n-1".into(),
            workers: 2,
            span: Duration::from_millis(700),
            hold: Duration::from_micros(1500),
        };
        assert_eq!(order.to_string(), "turns n-1 2 700 1500");
        assert_eq!(order.to_string().parse::<Order>()?, order);
        assert!("turns n-1 2 700".parse::<Order>().is_err() && "later n 1 1 1".parse::<Order>().is_err());
        Ok(())
    }
}
