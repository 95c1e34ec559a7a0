//! The least that could do it: `SET NX PX`, and a script that compares and deletes.

use redis::aio::MultiplexedConnection;

use crate::{Cycle, Failure};

pub struct Floor {
    connection: MultiplexedConnection,
    release: redis::Script,
}

impl Floor {
    pub async fn connect(url: &str) -> Result<Self, Failure> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let release = redis::Script::new(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        );
        Ok(Self { connection, release })
    }
}

impl Cycle for Floor {
    async fn run(&self, n: usize) -> Result<(), Failure> {
        let mut connection = self.connection.clone();
        let key = format!("floor-{n}");
        let owner = "0123456789abcdef0123456789abcdef";
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(owner).arg("NX").arg("PX").arg(30_000);
        let granted: Option<String> = set.query_async(&mut connection).await?;
        let deleted: i64 = self.release.key(&key).arg(owner).invoke_async(&mut connection).await?;
        if granted.is_none() || deleted != 1 {
            return Err("somebody else is on the floor".into());
        }
        Ok(())
    }
}
