//! N: names.

use lock_core::{ErrorKind, LockManager, LockName, Namespace, Page};

use crate::bench::{give_back, ms};
use crate::case::cases;
use crate::child::Child;
use crate::{Bench, Outcome, ensure};

cases! { "names":
    lengths_are_counted_in_bytes_and_refused_beyond: [N1 E1];
    names_that_differ_anywhere_are_different_locks: [N1];
    awkward_names_are_locks_of_their_own: [N1];
    names_below_names_do_not_touch: [N1];
    long_names_differ_in_their_last_byte: [N1];
    namespaces_keep_apart: [N1];
    the_released_version_excludes_this_one: [N2 M1] needs [Processes];
}

async fn lengths_are_counted_in_bytes_and_refused_beyond(b: &Bench) -> Outcome {
    let locks = b.manager().await?;
    let long = |bytes: usize| format!("{}{}", b.prefix(), "x".repeat(bytes - b.prefix().len()));
    for bad in [String::new(), long(513), long(5_000), long(70_000), format!("{}é", long(511))] {
        let error = locks.lock(bad.as_str()).ttl(b.ttl(5_000)).try_acquire().await.err();
        let kind = error.as_ref().map(lock_core::LockError::kind);
        ensure!(kind == Some(ErrorKind::InvalidName), "a name of {} bytes answered {error:?}", bad.len());
        let kind = locks.inspect(&bad).await.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::InvalidName), "inspecting a name of {} bytes answered {kind:?}", bad.len());
    }
    for good in [long(100), long(255), long(256), long(511), long(512), format!("{}é", long(510))] {
        let name = b.own_name(&good)?;
        let guard = locks.lock(good.as_str()).ttl(b.ttl(5_000)).acquire().await?;
        ensure!(b.peek(&name).await?.is_some(), "a name of {} bytes is not in the store", good.len());
        guard.release().await?;
    }
    Ok(())
}

/// All of them at once, each of which must be free although all others are held, and shown under its own name.
async fn all_apart(b: &Bench, texts: &[&str]) -> Outcome {
    let (client, other) = (b.client().await?, b.client().await?);
    let names = texts.iter().map(|text| b.name_of(text)).collect::<Result<Vec<_>, _>>()?;
    let mut held = Vec::new();
    for name in &names {
        let lease = client.try_take(name, b.ttl(30_000)).await?;
        held.push(lease.ok_or_else(|| format!("'{name}' is taken for another name"))?);
    }
    for name in &names {
        let shown = other.inspect(name).await?.ok_or_else(|| format!("'{name}' is held and not shown"))?;
        ensure!(shown.name == *name, "'{name}' is shown as '{}'", shown.name);
        ensure!(other.is_busy(name).await?, "'{name}' is held and not busy");
    }
    if b.capabilities().lists {
        let mut wanted: Vec<LockName> = names.clone();
        wanted.sort();
        let listed: Vec<_> = other.list(b.prefix(), Page::first(100)).await?.into_iter().map(|h| h.name).collect();
        ensure!(listed == wanted, "held are {wanted:?}, listed {listed:?}");
    }
    for (i, lease) in held.into_iter().enumerate() {
        give_back(lease).await?;
        if let Some(next) = names.get(i + 1) {
            ensure!(other.is_busy(next).await?, "the release of '{}' freed '{next}'", names[i]);
        }
    }
    Ok(())
}

async fn names_that_differ_anywhere_are_different_locks(b: &Bench) -> Outcome {
    all_apart(b, &["a", "A", "a ", " a", "a.", "aa", "ä", "Ä", "ss", "ß", "i", "İ", "ı", "0", "00", "a\u{200b}"]).await
}

async fn awkward_names_are_locks_of_their_own(b: &Bench) -> Outcome {
    let texts = [
        "🔒",
        "🔓",
        "日本語",
        "\u{e9}",
        "e\u{301}",
        "nul\0a",
        "nul\0b",
        "nul",
        "line\nend",
        "line\r\nend",
        "tab\t",
        "'",
        "\"",
        "\\",
        "\\\\",
        "%",
        "_",
        "*",
        "?",
        "[a]",
        "'; DROP TABLE distributed_lock; --",
        "{a}b",
        "{a}c",
        "a{b",
        "}{",
        "{}x",
        "a{b}{c}",
        "${x}",
        "$(x)",
        "\u{7f}",
        "\u{1b}[2J",
        "\u{202e}",
        "\u{fffd}",
        "\u{ffff}",
        "\u{10ffff}",
        "\u{1}",
        "-- ",
        "#",
        ":",
        ";",
        ",",
        "=",
        "+",
        "&",
        "lock-0000000001",
        "_c_x-lock-1",
        "__lock__0000000001",
    ];
    all_apart(b, &texts).await
}

async fn names_below_names_do_not_touch(b: &Bench) -> Outcome {
    let texts =
        ["a", "a/", "a/b", "a/b/", "a//b", "/a", "a/.", "a/..", "a/../b", ".", "..", "a:b", "a/lock-0000000001"];
    all_apart(b, &texts).await
}

async fn long_names_differ_in_their_last_byte(b: &Bench) -> Outcome {
    let mut texts = Vec::new();
    for bytes in [100, 190, 191, 192, 254, 255, 256, 499] {
        texts.extend(["a", "b"].map(|end| format!("{}{end}", "x".repeat(bytes - 1))));
        texts.extend(["é", "è"].map(|end| format!("{}{end}", "x".repeat(bytes - 2))));
    }
    all_apart(b, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await
}

async fn namespaces_keep_apart(b: &Bench) -> Outcome {
    let one = LockManager::builder().namespace(Namespace::new(format!("{}/one/", b.prefix()))?);
    let two = LockManager::builder().namespace(Namespace::new(format!("{}/two/", b.prefix()))?);
    let (one, two) = (b.manager_at(b.url(), one).await?, b.manager_at(b.url(), two).await?);
    b.own_name(&format!("{}/one/job", b.prefix()))?;
    b.own_name(&format!("{}/two/job", b.prefix()))?;
    let first = one.lock("job").ttl(b.ttl(10_000)).acquire().await?;
    let second = two.lock("job").ttl(b.ttl(10_000)).wait(ms(1_000)).acquire().await?;
    ensure!(first.name().as_str() == "job", "the guard's name is '{}'", first.name());
    let shown = one.inspect("job").await?.ok_or("a held name is not shown")?;
    ensure!(shown.name.as_str() == "job", "a name is shown as '{}'", shown.name);
    if b.capabilities().lists {
        let listed: Vec<_> = one.list("", Page::first(10)).await?.into_iter().map(|h| h.name.to_string()).collect();
        ensure!(listed == ["job"], "the namespace lists {listed:?}");
    }
    first.release().await?;
    second.release().await?;
    Ok(())
}

async fn the_released_version_excludes_this_one(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let (mut child, token) = Child::released_holder(b, &name, b.ttl(5_000)).await?;
    ensure!(client.is_busy(&name).await?, "a name held by the released version is granted");
    let shown = client.inspect(&name).await?.ok_or("a name held by the released version is not shown")?;
    ensure!(
        shown.token.map(lock_core::FencingToken::get) == Some(token),
        "its token is {token}, shown {:?}",
        shown.token
    );
    child.end_input();
    child.expect("released Released").await?;
    let lease = client.take(&name, b.ttl(5_000)).await?;
    ensure!(lease.fencing_token().get() > token, "the token did not rise from one version to the other");
    give_back(lease).await
}
