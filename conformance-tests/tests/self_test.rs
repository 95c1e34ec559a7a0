//! The suite watches itself: every rule has a case, every case a rule, every rule a mutant or a reason.

use std::collections::HashSet;

use conformance_tests::case;
use conformance_tests::rules::RULES;

const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lock-core/src/contract.md");

/// The numbers that start a list item of the contract: `- M1 ...` or `- **M1** ...`.
fn rules_of_the_contract() -> std::io::Result<Vec<String>> {
    let text = std::fs::read_to_string(CONTRACT)?;
    let numbers = text.lines().filter_map(|line| {
        let item = line.trim_start().strip_prefix("- ")?.trim_start_matches(['*', '<', '`', '[']);
        let id: String = item.chars().take_while(char::is_ascii_alphanumeric).collect();
        let (letter, number) = id.split_at_checked(1)?;
        let is_rule = letter.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u8>().is_ok();
        is_rule.then_some(id)
    });
    Ok(numbers.collect())
}

#[test]
fn the_suite_knows_all_rules_of_the_contract() -> std::io::Result<()> {
    let known: Vec<_> = RULES.iter().map(|rule| rule.id.to_owned()).collect();
    assert_eq!(rules_of_the_contract()?, known);
    Ok(())
}

#[test]
fn every_rule_has_a_case_and_every_case_a_rule() {
    let cited: HashSet<_> = case::all().flat_map(|case| case.rules).copied().collect();
    let known: HashSet<_> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(known.difference(&cited).collect::<Vec<_>>(), Vec::<&&str>::new(), "rules without a case");
    assert_eq!(cited.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new(), "cases that cite no rule");
    for case in case::all() {
        assert!(!case.rules.is_empty(), "{} proves nothing", case.full_name());
    }
}

#[test]
fn names_of_cases_are_unique() {
    let names: HashSet<_> = case::all().map(|case| case.full_name()).collect();
    assert_eq!(names.len(), case::all().count());
    assert!(names.len() >= 60, "only {} cases", names.len());
}

#[cfg(feature = "mutants")]
#[test]
fn every_rule_has_a_mutant_or_a_reason() {
    use std::collections::BTreeSet;

    use conformance_tests::mutants::{MUTANTS, WITHOUT_MUTANT};
    let with: BTreeSet<_> = MUTANTS.iter().flat_map(|mutant| mutant.rules).copied().collect();
    let without: BTreeSet<_> = WITHOUT_MUTANT.iter().map(|(rule, _)| *rule).collect();
    let all: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(with.union(&without).copied().collect::<BTreeSet<_>>(), all);
    assert_eq!(with.intersection(&without).count(), 0, "a rule has both a mutant and a reason for having none");
    for mutant in MUTANTS {
        let aimed = case::all().find(|case| case.full_name() == mutant.killed_by);
        let aimed = aimed.unwrap_or_else(|| panic!("there is no case '{}'", mutant.killed_by));
        assert!(aimed.needs.is_empty(), "{} does not run on the memory backend", mutant.killed_by);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn every_fault_is_a_mutant() {
    use conformance_tests::mutants::MUTANTS;
    use lock_core::memory::Fault;
    let used: Vec<_> = MUTANTS.iter().map(|mutant| mutant.fault).collect();
    let unused: Vec<_> = Fault::ALL.iter().filter(|fault| !used.contains(fault)).collect();
    assert!(unused.is_empty(), "nothing is aimed at {unused:?}");
}
