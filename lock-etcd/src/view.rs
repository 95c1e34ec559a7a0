//! What the operator sees: holders, lists, revocation.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, UNIX_EPOCH};

use etcd_client::{Client, Compare, CompareOp, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use lock_core::{FencingToken, Holder, HolderState, LockError, LockName, Owner, Page, Released, Revoke, bounded};

use crate::backend::Inner;
use crate::connection::Resend;
use crate::keys::{self, State};

/// Keys read in one go while listing.
const SCAN: i64 = 1000;

impl Inner {
    /// The contenders of a name, the oldest first.
    async fn contenders(&self, name: &LockName) -> Result<Vec<KeyValue>, LockError> {
        let folder = keys::folder(name);
        let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        let mut found = self.link.get(folder.clone(), options).await?;
        found.retain(|kv| keys::contender(&folder, kv).is_some());
        Ok(found)
    }

    pub(crate) async fn look(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let contenders = self.contenders(name).await?;
        let Some(first) = contenders.first() else { return Ok(None) };
        let mut holder = foremost(name, first, &contenders);
        holder.remaining = self.remaining(first.lease()).await?;
        Ok(holder.remaining.is_some().then_some(holder))
    }

    /// Who is in the way of an owner that is leaving, in one round trip.
    pub(crate) async fn in_the_way(&self, name: &LockName, leaver: &Owner) -> Result<Option<Holder>, LockError> {
        let (mut contenders, own) = (self.contenders(name).await?, keys::entry(name, leaver));
        contenders.retain(|kv| kv.key() != own);
        Ok(contenders.first().map(|first| foremost(name, first, &contenders)))
    }

    /// How long a lease still lives at most: the server tells whole seconds, cut. `None` when it is gone.
    async fn remaining(&self, lease: i64) -> Result<Option<Duration>, LockError> {
        let request = |client: &Client| {
            let mut leases = client.lease_client();
            async move { leases.time_to_live(lease, None).await }
        };
        let answer = self.link.send(Resend::Once, request).await.map_err(|failure| self.link.error(failure))?;
        let left = u64::try_from(answer.ttl()).ok().map(|left| left + 1);
        Ok(left.map(|left| Duration::from_secs(left.min(answer.granted_ttl().unsigned_abs()))))
    }

    pub(crate) async fn scan(&self, prefix: &str, page: &Page) -> Result<Vec<Holder>, LockError> {
        let mut oldest: BTreeMap<LockName, (KeyValue, u64)> = BTreeMap::new();
        let end = after_all(prefix.as_bytes());
        // No key is empty.
        let mut from = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(SCAN);
            let found = bounded(self.limit, self.link.get(from.clone(), options)).await?;
            let whole = found.len() < SCAN as usize;
            if let Some(last) = found.last() {
                from = [last.key(), &[0]].concat();
            }
            for kv in found {
                let Some((name, _)) = keys::lock_of(&kv) else { continue };
                if !name.as_str().starts_with(prefix) || page.after.as_ref().is_some_and(|after| name <= *after) {
                    continue;
                }
                let (first, count) = oldest.entry(name).or_insert_with(|| (kv.clone(), 0));
                *count += 1;
                if kv.create_revision() < first.create_revision() {
                    *first = kv;
                }
            }
            if whole {
                break;
            }
        }
        let mut times = HashMap::new();
        let mut holders = Vec::new();
        for (name, (kv, count)) in oldest {
            if holders.len() >= page.limit {
                break;
            }
            let remaining = match times.get(&kv.lease()) {
                Some(known) => *known,
                None => bounded(self.limit, self.remaining(kv.lease())).await?,
            };
            times.insert(kv.lease(), remaining);
            let mut holder = holder(&name, &keys::folder(&name), &kv);
            holder.waiters = Some(count - 1);
            holder.remaining = remaining;
            holders.extend(holder.remaining.is_some().then_some(holder));
        }
        Ok(holders)
    }

    pub(crate) async fn break_lock(
        &self,
        name: &LockName,
        expect: Option<FencingToken>,
        how: Revoke,
    ) -> Result<Released, LockError> {
        // The entry that is looked at is the one that is broken; another that comes in between is looked at in its turn.
        for _ in 0..3 {
            let contenders = self.contenders(name).await?;
            let Some(first) = contenders.first() else { return Ok(Released::NotHeld) };
            if expect.is_some_and(|token| token != self::token(first)) {
                return Ok(Released::NotHeld);
            }
            let key = first.key().to_vec();
            let op = match how {
                Revoke::Now => TxnOp::delete(key.clone(), None),
                Revoke::Mark => {
                    let options = PutOptions::new().with_lease(first.lease());
                    TxnOp::put(key.clone(), keys::marked(first.value()), Some(options))
                }
            };
            let txn = Txn::new()
                .when([
                    Compare::create_revision(key.clone(), CompareOp::Equal, first.create_revision()),
                    Compare::mod_revision(key, CompareOp::Equal, first.mod_revision()),
                ])
                .and_then([op]);
            let answer = self.link.txn(txn, Resend::Never).await.map_err(|failure| self.link.error(failure))?;
            if answer.succeeded() {
                return Ok(Released::Released);
            }
        }
        Ok(Released::NotHeld)
    }
}

fn token(kv: &KeyValue) -> FencingToken {
    FencingToken::new(kv.create_revision().unsigned_abs())
}

/// The first contender of a name, and how many come after it.
fn foremost(name: &LockName, first: &KeyValue, contenders: &[KeyValue]) -> Holder {
    let mut holder = holder(name, &keys::folder(name), first);
    holder.waiters = u64::try_from(contenders.len() - 1).ok();
    holder
}

/// What a contender's entry says of its holder.
pub(crate) fn holder(name: &LockName, folder: &[u8], kv: &KeyValue) -> Holder {
    let part = keys::contender(folder, kv).unwrap_or_default();
    let said = part.parse::<Owner>().ok().and_then(|_| keys::parsed(kv.value()));
    let state = match said {
        Some((State::Held, ..)) => HolderState::Held,
        // The name is free, and this one is about to take it.
        Some((State::Waiting, ..)) => HolderState::Reserved,
        Some((State::Revoked, ..)) => HolderState::Revoked,
        None => HolderState::Foreign,
    };
    let mut holder = Holder::new(name.clone(), part, state);
    holder.token = Some(token(kv));
    if let Some((_, since, label)) = said {
        holder.since = UNIX_EPOCH.checked_add(Duration::from_millis(since));
        holder.label = (!label.is_empty()).then(|| label.to_owned());
    }
    holder
}

/// The first key after all that start with a prefix of UTF-8, as the end of a range.
fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    match end.last_mut() {
        // No byte of UTF-8 is 0xFF.
        Some(last) => *last += 1,
        None => end.push(0xff),
    }
    end
}
