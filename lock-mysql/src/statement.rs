//! The statements, with the table's name filled in and with numbered parameters.

use std::sync::Arc;

use sqlx::AssertSqlSafe;
use sqlx::mysql::{MySql, MySqlArguments};

/// Microseconds since 1970 by the server's clock: the same moment all over one statement, and never before it was sent.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// How many names one statement may speak of.
pub(crate) const MOST_NAMES: usize = 64;

/// A statement with parameters `?1` to `?9`, which may stand in it repeatedly. The server's own are counted by their place only.
#[derive(Debug)]
pub(crate) struct Statement {
    text: Arc<str>,
    order: Vec<usize>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Bytes(Vec<u8>),
    Text(String),
    Int(i64),
    Uint(u64),
}

pub(crate) type Query = sqlx::query::Query<'static, MySql, MySqlArguments>;

impl Statement {
    pub(crate) fn new(template: &str, table: &str) -> Self {
        let template = clean(template, table);
        let (mut text, mut order) = (String::with_capacity(template.len()), Vec::new());
        let mut chars = template.chars().peekable();
        while let Some(c) = chars.next() {
            text.push(c);
            if c == '?'
                && let Some(number) = chars.next_if(char::is_ascii_digit).and_then(|c| c.to_digit(10))
            {
                order.push(number as usize - 1);
            }
        }
        Self { text: text.into(), order }
    }

    /// The query with its arguments, of which the first is `?1`.
    pub(crate) fn query(&self, args: &[Arg]) -> Query {
        let query = sqlx::query(AssertSqlSafe(self.text.clone()));
        self.order.iter().fold(query, |query, &i| bind(query, &args[i]))
    }

    /// The query whose text ends in `IN`, with these names behind it. They are filled up to a few fixed numbers, so that a server has
    /// few statements to prepare.
    pub(crate) fn query_in(&self, args: &[Arg], names: &[Vec<u8>]) -> Query {
        let room = names.len().clamp(1, MOST_NAMES).next_power_of_two();
        let list = vec!["?"; room].join(", ");
        let query = sqlx::query(AssertSqlSafe(format!("{} ({list})", self.text)));
        let query = self.order.iter().fold(query, |query, &i| bind(query, &args[i]));
        (0..room).fold(query, |query, i| {
            let name = names.get(i).or(names.first()).cloned().unwrap_or_default();
            bind(query, &Arg::Bytes(name))
        })
    }
}

/// The template without its comments, with table and clock.
pub(crate) fn clean(template: &str, table: &str) -> String {
    let lines = template.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").replace("{now}", NOW).replace("{table}", &format!("`{table}`"))
}

fn bind(query: Query, arg: &Arg) -> Query {
    match arg {
        Arg::Bytes(bytes) => query.bind(bytes.clone()),
        Arg::Text(text) => query.bind(text.clone()),
        Arg::Int(number) => query.bind(*number),
        Arg::Uint(number) => query.bind(*number),
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) schema: String,
    pub(crate) take: Statement,
    pub(crate) renew: Statement,
    pub(crate) release: Statement,
    pub(crate) revoke_mark: Statement,
    pub(crate) revoke_now: Statement,
    pub(crate) state: Statement,
    pub(crate) line_up: Statement,
    pub(crate) leave: Statement,
    pub(crate) list: Statement,
    pub(crate) idle: Statement,
    pub(crate) sweep: Statement,
}

macro_rules! statements {
    ($table:expr, $($name:ident),*) => {
        Statements {
            schema: clean(include_str!("sql/schema.sql"), $table),
            $($name: Statement::new(include_str!(concat!("sql/", stringify!($name), ".sql")), $table)),*
        }
    };
}

impl Statements {
    pub(crate) fn new(table: &str) -> Self {
        statements!(table, take, renew, release, revoke_mark, revoke_now, state, line_up, leave, list, idle, sweep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_and_comments_left_out() {
        let statement = Statement::new("-- ?1 what\nSELECT ?2, ?1\n    -- why?\nFROM {table} WHERE x = ?2", "t");
        assert_eq!(&*statement.text, "SELECT ?, ?\nFROM `t` WHERE x = ?");
        assert_eq!(statement.order, [1, 0, 1]);
    }

    #[test]
    fn every_statement_speaks_of_the_table_and_ends_without_a_rest() {
        let all = Statements::new("my_locks");
        for statement in [&all.take, &all.renew, &all.release, &all.state, &all.list, &all.sweep] {
            assert!(statement.text.contains("`my_locks`") && !statement.text.contains(['{', ';']), "{statement:?}");
        }
        assert!(all.schema.starts_with("CREATE TABLE IF NOT EXISTS `my_locks` ("), "{}", all.schema);
    }
}
