//! Certificates of servers and clients, and who has signed them.

use crate::harness::Folder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::fs;

/// Who signs.
pub struct Authority(pub CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for `name` and its key to `NAME.crt` and `NAME.key`.
    pub fn sign(&self, folder: &Folder, file: &str, name: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        // Another one than the authority's, or OpenSSL takes it to be signed by itself.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        fs::write(folder.join(&format!("{file}.crt")), certificate.pem()).unwrap();
        fs::write(folder.join(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

/// A folder with certificates of a server and a client, and who has signed them.
pub fn certificates() -> (Folder, Authority) {
    let folder = Folder::new();
    let authority = Authority::new();
    fs::write(folder.join("ca.crt"), authority.0.pem()).unwrap();
    authority.sign(&folder, "server", "localhost");
    authority.sign(&folder, "client", "client");
    (folder, authority)
}
