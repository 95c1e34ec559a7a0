//! What is done to a server by a client of its own product.

use lock_core::LockName;
use redis::AsyncCommands;
use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;

use super::ground::Ground;
use crate::Stop;
use crate::servers::redis::patient_connection;

async fn redis(ground: &Ground) -> Result<redis::aio::MultiplexedConnection, Stop> {
    Ok(patient_connection(&ground.instance().url()).await?)
}

/// Ends the connections of all clients but the one that says so.
pub(super) async fn kill_clients(ground: &Ground) -> Result<(), Stop> {
    if ground.scheme() == "redis" {
        let mut connection = redis(ground).await?;
        for kind in ["pubsub", "normal"] {
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", kind, "SKIPME", "yes"]).exec_async(&mut connection).await?;
        }
        return Ok(());
    }
    let port = ground.instance().address().ok_or("the server has no address")?.port();
    let options = MySqlConnectOptions::new().host("127.0.0.1").port(port);
    let mut connection = options.username("admin").password("admin").database("locks").connect().await?;
    let ids: Vec<(i64,)> =
        sqlx::query_as("SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE user = 'app'")
            .fetch_all(&mut connection)
            .await?;
    for (id,) in ids {
        // It may have gone by itself.
        let _ = sqlx::query(sqlx::AssertSqlSafe(format!("KILL {id}"))).execute(&mut connection).await;
    }
    Ok(())
}

/// Forgets all scripts, as a restart does.
pub(super) async fn flush_scripts(ground: &Ground) -> Result<(), Stop> {
    Ok(redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut redis(ground).await?).await?)
}

/// Sets the limit on memory, beyond which nothing is written: "0" for none.
pub(super) async fn memory(ground: &Ground, limit: &str) -> Result<(), Stop> {
    let mut connection = redis(ground).await?;
    redis::cmd("CONFIG").arg(&["SET", "maxmemory-policy", "noeviction"]).exec_async(&mut connection).await?;
    Ok(redis::cmd("CONFIG").arg(&["SET", "maxmemory", limit]).exec_async(&mut connection).await?)
}

/// Deletes the queue of a name, with all who wait in it.
pub(super) async fn delete_queue(ground: &Ground, name: &LockName) -> Result<(), Stop> {
    let mut connection = redis(ground).await?;
    let mut pattern = name.as_str().as_bytes().to_vec();
    pattern.extend(b"\xff*");
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await?;
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut connection).await?;
        if kind == "zset" {
            connection.del::<_, ()>(&key).await?;
        }
    }
    Ok(())
}

/// Revokes all leases, those of the locks among them.
#[cfg(feature = "etcd")]
pub(super) async fn revoke_leases(ground: &Ground) -> Result<(), Stop> {
    let hosts: Vec<_> = ground.instance().addresses().iter().map(ToString::to_string).collect();
    let mut client = etcd_client::Client::connect(hosts, None).await?;
    for lease in client.lease_client().leases().await?.leases() {
        // It may have ended by itself.
        let _ = client.lease_revoke(lease.id()).await;
    }
    Ok(())
}

/// There is no etcd in this build.
#[cfg(not(feature = "etcd"))]
#[allow(clippy::unused_async)]
pub(super) async fn revoke_leases(_: &Ground) -> Result<(), Stop> {
    Err("built without etcd".into())
}
