//! A certificate of the suite's own, for servers that speak TLS.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::{Stop, ensure};

/// An authority, and a certificate that it signed, as files that end with this.
#[derive(Debug)]
pub struct Certificate(TempDir);

impl Certificate {
    /// Makes one for servers at these addresses.
    ///
    /// # Errors
    /// When openssl is not installed or fails.
    pub fn of(addresses: &[IpAddr]) -> Result<Self, Stop> {
        let it = Self(tempfile::tempdir()?);
        let names: Vec<_> = addresses.iter().map(|address| format!("IP:{address}")).collect();
        let settings = format!(
            "[req]\ndistinguished_name=dn\n[dn]\n[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n\
             [server]\nsubjectAltName={}\nextendedKeyUsage=serverAuth,clientAuth\n",
            names.join(",")
        );
        std::fs::write(it.file("settings"), settings)?;
        const KEY: &str = "-config settings -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        it.openssl(&format!("req -x509 {KEY} -keyout ca.key -out ca.crt -days 2 -subj /CN=authority -extensions ca"))?;
        it.openssl(&format!("req {KEY} -keyout server.key -out server.csr -subj /CN=server"))?;
        it.openssl(
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile settings -extensions server -out server.crt",
        )?;
        Ok(it)
    }

    /// The certificate of the authority, which clients must trust.
    pub fn authority(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// The server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// The server's key.
    pub fn key(&self) -> PathBuf {
        self.file("server.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, arguments: &str) -> Result<(), Stop> {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(self.0.path()).output();
        let made = made.map_err(|e| format!("cannot start openssl: {e}; apt-get install openssl"))?;
        ensure!(made.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    }
}
