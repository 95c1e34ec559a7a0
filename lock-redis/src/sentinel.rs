//! Who is the primary, as sentinels know it; and asking several for what one of them may not know yet.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tokio_util::sync::CancellationToken;

use crate::config::RedisConfig;
use crate::errors::problem;
use crate::node::{ASK_LIMIT, Node, Place, Server, timed_out};
use crate::scripts::{parts, text};
use lock_core::LockError;

/// The sentinels of a service.
pub(crate) struct Sentinels {
    service: String,
    nodes: Vec<Arc<Node>>,
    config: RedisConfig,
}

impl Sentinels {
    pub(crate) fn new(config: &RedisConfig, service: &str, closed: &CancellationToken) -> Result<Self, LockError> {
        let node = |address: &String| {
            let client = config.sentinel_client(address)?;
            let server = Server { address: address.clone(), client };
            Ok(Arc::new(Node::new(Place::At(server), false, ASK_LIMIT, closed.clone())))
        };
        let nodes = config.hosts().iter().map(node).collect::<Result<_, LockError>>()?;
        Ok(Self { service: service.to_owned(), nodes, config: config.clone() })
    }

    /// The primary, as the sentinel with the newest view of things knows it. It is spoken to by the login of the URL.
    pub(crate) async fn primary(&self) -> Result<Server, RedisError> {
        let address = newest(self.nodes.iter().map(|node| self.asked(node.clone())).collect()).await?;
        let client = self.config.client(&address).map_err(|e| problem("ADDRESS", e.to_string()))?;
        Ok(Server { address, client })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// How many of them see a majority, which a failover takes.
    pub(crate) async fn able(&self) -> usize {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("CKQUORUM").arg(&self.service);
        join_all(self.nodes.iter().map(|node| node.ask(&ask))).await.iter().filter(|answer| answer.is_ok()).count()
    }

    pub(crate) fn close(&self) {
        self.nodes.iter().for_each(|node| node.close());
    }

    fn asked(&self, node: Arc<Node>) -> Question<String> {
        let service = self.service.clone();
        Box::pin(async move {
            let state = match node.ask(redis::cmd("SENTINEL").arg("MASTER").arg(&service)).await {
                Err(error) if error.to_string().contains("No such master") => {
                    return Err(problem("NOSERVICE", format!("no primary is watched under the name '{service}'")));
                }
                Err(error) if error.to_string().contains("unknown command") => {
                    return Err(problem("NOSENTINEL", "it is no sentinel".to_owned()));
                }
                Err(error) if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) || is_login(&error) => {
                    return Err(problem("SENTINELAUTH", error.to_string()));
                }
                state => state?,
            };
            // In the midst of a failover this knows the new primary already.
            let address = node.ask(redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&service)).await?;
            let [host, port] = parts(&address) else {
                return Err(problem("NOSERVICE", format!("no primary is watched under the name '{service}'")));
            };
            let (host, port) = (text(Some(host)), text(Some(port)));
            let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            Ok((field(&state, "config-epoch").parse().unwrap_or(0), address))
        })
    }
}

fn is_login(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::AuthenticationFailed
}

/// A field of an answer that is a map, or a list of keys and values.
fn field<'a>(answer: &'a Value, key: &str) -> &'a str {
    match answer {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| text(Some(name)) == key).map(|(_, value)| text(Some(value))),
        list => parts(list).chunks(2).find(|pair| text(pair.first()) == key).map(|pair| text(pair.get(1))),
    }
    .unwrap_or_default()
}

/// A question to one of several, answered with how new the answer is.
pub(crate) type Question<T> = BoxFuture<'static, Result<(u64, T), RedisError>>;

/// The newest of the answers, once more than half have answered, or all that do.
///
/// A majority is not waited for beyond the time in which somebody alive answers: where only one is left, its word counts.
pub(crate) async fn newest<T: Clone>(questions: Vec<Question<T>>) -> Result<T, RedisError> {
    let enough = questions.len() / 2 + 1;
    let mut open: FuturesUnordered<_> = questions.into_iter().collect();
    let (mut best, mut answers, mut failed): (Option<(u64, T)>, usize, Option<RedisError>) = (None, 0, None);
    let end = tokio::time::Instant::now() + ASK_LIMIT * 2;
    while answers < enough {
        let limit = if best.is_some() { end.min(tokio::time::Instant::now() + PATIENCE) } else { end };
        match tokio::time::timeout_at(limit, open.next()).await {
            Ok(Some(Ok(answer))) => {
                answers += 1;
                if best.as_ref().is_none_or(|best| best.0 < answer.0) {
                    best = Some(answer);
                }
            }
            // What a server answered says more than that another is gone.
            Ok(Some(Err(error))) if failed.as_ref().is_none_or(|failed| failed.code().is_none()) => {
                failed = Some(error)
            }
            Ok(Some(Err(_))) => {}
            Ok(None) | Err(_) => break,
        }
    }
    match (best, failed) {
        (Some((_, answer)), _) => Ok(answer),
        (None, Some(error)) => Err(error),
        (None, None) => timed_out(),
    }
}

/// How long others are waited for once one has answered.
const PATIENCE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(epoch: u64, text: &'static str) -> Question<&'static str> {
        Box::pin(async move { Ok((epoch, text)) })
    }

    fn silence() -> Question<&'static str> {
        Box::pin(std::future::pending())
    }

    fn failure(code: Option<&'static str>) -> Question<&'static str> {
        Box::pin(async move { code.map_or_else(timed_out, |code| Err(problem(code, String::new()))) })
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_answer_of_a_majority_counts() {
        assert_eq!(newest(vec![answer(1, "old"), answer(2, "new"), silence()]).await.unwrap(), "new");
        assert_eq!(newest(vec![silence(), failure(None), answer(1, "last")]).await.unwrap(), "last");
        let refused = newest(vec![failure(None), failure(Some("NOSERVICE")), failure(None)]).await.unwrap_err();
        assert_eq!(refused.code(), Some("NOSERVICE"));
        assert!(newest(vec![silence(), failure(None)]).await.is_err(), "in time");
    }

    #[test]
    fn a_field_is_found_in_both_protocols() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let list = Value::Array(vec![bulk("ip"), bulk("h"), bulk("config-epoch"), bulk("7")]);
        assert_eq!((field(&list, "config-epoch"), field(&list, "x")), ("7", ""));
        assert_eq!(field(&Value::Map(vec![(bulk("config-epoch"), bulk("7"))]), "config-epoch"), "7");
    }
}
