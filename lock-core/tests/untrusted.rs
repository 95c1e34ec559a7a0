//! What comes from outside: names, owners, URLs. Whatever it is, nothing panics, nothing is shown that must not be, and what is good comes back.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use lock_core::{ErrorKind, LockName, Login, Namespace, Owner, UrlForm, escaped};
use proptest::prelude::*;

const FORM: UrlForm = UrlForm {
    backend: "demo",
    schemes: &["demo", "demos"],
    port: 4000,
    many_hosts: true,
    login: Login::PasswordAlone,
    parameters: &["table", "x"],
    shape: "give demo://HOST",
};

/// Every byte of a text that is no plain letter or digit, as %XX.
fn percent(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// Nothing that a terminal or a log obeys or hides.
fn is_harmless(text: &str) -> bool {
    text.chars().all(|c| matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1)
}

proptest! {
    #[test]
    fn any_bytes_are_a_name_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let good = (1..=512).contains(&bytes.len()) && std::str::from_utf8(&bytes).is_ok();
        match LockName::from_bytes(&bytes) {
            Ok(name) => prop_assert!(good && name.as_str().as_bytes() == bytes),
            Err(error) => {
                prop_assert!(!good);
                prop_assert_eq!(error.kind(), ErrorKind::InvalidName);
                prop_assert!(is_harmless(&error.to_string()), "{}", error);
            }
        }
    }

    #[test]
    fn a_name_is_shown_without_harm(text in ".{1,120}|[\\x00-\\x1f\\x7f-\\u{a0}\\u{200b}-\\u{2070}\\u{e0000}-\\u{e0100}a]{1,40}") {
        let name = LockName::new(&text).unwrap();
        prop_assert!(is_harmless(&format!("{name}")), "{}", name);
        prop_assert!(is_harmless(&format!("{name:?}")), "{:?}", name);
        prop_assert!(is_harmless(&escaped(&text).to_string()));
    }

    #[test]
    fn a_namespace_goes_on_and_comes_off(prefix in ".{0,32}", text in ".{1,100}") {
        let (namespace, name) = (Namespace::new(prefix).unwrap(), LockName::new(text).unwrap());
        let whole = namespace.apply(&name);
        prop_assert_eq!(LockName::from_store(whole.as_str()), Some(whole.clone()));
        prop_assert_eq!(namespace.strip(&whole), Some(name));
    }

    #[test]
    fn an_owner_is_its_32_digits_and_nothing_else(text in "[0-9a-f]{32}|[0-9a-fA-F+-]{30,34}|.{0,40}") {
        match text.parse::<Owner>() {
            Ok(owner) => prop_assert_eq!(owner.to_string(), text),
            Err(error) => prop_assert!(is_harmless(&error.to_string())),
        }
    }

    #[test]
    fn any_text_is_a_url_or_is_refused(text in "(demos?://)?[\\x00-\\x7f]{0,60}|(demos?://)?\\PC{0,60}") {
        if let Ok(url) = FORM.read(&text) {
            prop_assert!(!url.hosts.is_empty());
            url.first_host();
        }
    }

    #[test]
    fn a_good_url_comes_back_and_shows_no_password(
        hosts in prop::collection::vec("[a-z][a-z0-9.-]{0,9}|\\[::1\\]", 1..4), port in any::<u16>(), user in "\\PC{1,9}", password in "sEnTiNeL\\PC{0,9}",
        path in "(/[a-z]{0,5}){0,2}", value in "\\PC{0,9}",
    ) {
        let list: Vec<_> = hosts.iter().map(|host| format!("{host}:{port}")).collect();
        let text = format!("demo://{}:{}@{}{path}?table={}", percent(&user), percent(&password), list.join(","), percent(&value));
        let url = FORM.read(&text).unwrap();
        prop_assert_eq!((&url.hosts, &url.path), (&list, &path));
        prop_assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some(&*user), Some(&*password)));
        prop_assert_eq!(&url.parameters, &[("table".to_owned(), value)]);
        let shown = format!("{url:?}");
        prop_assert!(!shown.contains("sEnTiNeL"), "{}", shown);
    }

    /// A mistake anywhere in a URL with a password in it.
    #[test]
    fn no_error_about_a_url_shows_the_password(
        at in 0..60usize, put in "[:/@?#%&=, a-z\\[\\]\\x00]{1,3}", cut in 0..4usize, escape in any::<bool>(),
    ) {
        let password = if escape { "sEnTiNeL%2F%40" } else { "sEnTiNeL/@:?" };
        let text = format!("demo://app:{password}@h1:1,h2:2/path?table=a&x=b");
        let (before, after) = text.split_at(at.min(text.len()));
        let text = format!("{before}{put}{}", after.get(cut..).unwrap_or(""));
        if let Err(error) = FORM.read(&text) {
            // A piece of it is no better.
            let shown = format!("{error} {error:?}");
            prop_assert!(!shown.contains("sEnT") && !shown.contains("TiNeL"), "{} of {}", shown, text);
            prop_assert!(is_harmless(&error.to_string()), "{}", error);
        }
    }
}
