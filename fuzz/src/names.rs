use lock_core::{LockName, Namespace, Owner, escaped};

/// Reads a name or an owner, or a namespace and a name on two lines.
pub fn read(bytes: &[u8]) {
    if let Ok(name) = LockName::from_bytes(bytes) {
        assert_eq!(name.as_str().as_bytes(), bytes);
        assert!(!name.to_string().contains(char::is_control));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    assert!(!escaped(text).to_string().contains(char::is_control));
    if let Ok(owner) = text.parse::<Owner>() {
        assert_eq!(owner.to_string(), text);
    }
    let (prefix, rest) = text.split_once('\n').unwrap_or(("", text));
    if let (Ok(namespace), Ok(name)) = (Namespace::new(prefix), LockName::new(rest)) {
        assert_eq!(namespace.strip(&namespace.apply(&name)), Some(name));
    }
}
