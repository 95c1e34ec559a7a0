//! How the members are started.

use std::process::{Command, Stdio};

use super::{DOWN_AFTER, Form, RedisGroup, SERVICE};
use crate::Stop;
use crate::servers::gates::{HOLDER, address_of};

impl RedisGroup {
    /// Sentinels write into its file whom it follows, so that it knows after a restart.
    pub(super) fn server(&self, member: usize) -> Result<Command, Stop> {
        let folder = self.members[member].folder.path();
        let (file, host, port) = (folder.join("redis.conf"), address_of(member), self.members[member].ports[0]);
        let gate = |number| self.gates.port(member, number);
        let common = format!(
            "bind {host}\nbind-source-addr {host}\nport {port}\nprotected-mode no\nloglevel warning\ndir {}\nsave \"\"\nappendonly yes\n\
             repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nrepl-timeout 5\nuser {HOLDER} on nopass ~* &* +@all\n",
            folder.display()
        );
        let special = match self.form {
            Form::Sentinel { .. } => {
                let first = self.address(0);
                let follow = format!("replicaof {} {}\n", first.ip(), first.port());
                let announced =
                    format!("replica-announce-ip {host}\nreplica-announce-port {}\n", self.address(member).port());
                if member == 0 { announced } else { announced + &follow }
            }
            Form::Cluster => format!(
                "cluster-enabled yes\ncluster-node-timeout {DOWN_AFTER}\ncluster-port {}\ncluster-announce-ip {host}\n\
                 cluster-announce-port {}\ncluster-announce-bus-port {}\ncluster-replica-validity-factor 0\n",
                self.members[member].ports[1],
                gate(0),
                gate(1)
            ),
        };
        if !file.exists() {
            std::fs::write(&file, common + &special + &self.secured(member))?;
        }
        let mut command = Command::new("redis-server");
        command.arg(file);
        Ok(quiet(command))
    }

    /// A sentinel writes what it learns into its file, from which it starts again.
    pub(super) fn sentinel(&self, member: usize) -> Result<Command, Stop> {
        let file = self.members[member].folder.path().join("sentinel.conf");
        if !file.exists() {
            let (host, port) = (address_of(member), self.members[member].ports[0]);
            let (gate, first) = (self.address(member).port(), self.address(0));
            let (ip, monitored) = (first.ip(), first.port());
            let settings = format!(
                "bind {host}\nbind-source-addr {host}\nport {port}\nprotected-mode no\nloglevel warning\nuser {HOLDER} on nopass ~* &* +@all\n\
                 sentinel announce-ip {host}\nsentinel announce-port {gate}\n\
                 sentinel monitor {SERVICE} {ip} {monitored} 2\nsentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}\n\
                 sentinel failover-timeout {SERVICE} 5000\n"
            );
            std::fs::write(&file, settings + &self.secured(member))?;
        }
        let mut command = Command::new("redis-server");
        command.arg(file).arg("--sentinel").arg("--dir").arg(self.members[member].folder.path());
        Ok(quiet(command))
    }

    /// What makes clients and members dial this one over TLS, and it them.
    fn secured(&self, member: usize) -> String {
        let Some(tls) = &self.tls else { return String::new() };
        let form = match self.form {
            Form::Sentinel { .. } => String::new(),
            Form::Cluster => format!("tls-cluster yes\ncluster-announce-tls-port {}\n", self.address(member).port()),
        };
        format!(
            "tls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients no\ntls-replication yes\n{form}",
            self.members[member].ports[2],
            tls.certificate().display(),
            tls.key().display(),
            tls.authority().display()
        )
    }
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
