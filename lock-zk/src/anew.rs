//! The move of a node from one session to another.

use lock_core::{FencingToken, LockError};
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult};

use crate::errors::failed;
use crate::node::Data;
use crate::session::ended;

/// Puts a node of this client's session in the place of the owner's node, under the same name and so at the same place in the queue, in one
/// transaction: nobody gets in between. Answers the new node's token; `None`, and nothing is done, where `gone` stands.
pub(crate) async fn make_anew(
    client: &Client,
    acls: Acls<'_>,
    path: &str,
    data: &Data,
    gone: Option<&str>,
) -> Result<Option<FencingToken>, LockError> {
    let options = CreateMode::Ephemeral.with_acls(acls);
    let mut writer = client.new_multi_writer();
    if let Some(gone) = gone {
        // There is no check for a node that must not be there, but one cannot be made twice.
        writer.add_create(gone, &[], &options).map_err(failed)?;
        writer.add_delete(gone, None).map_err(failed)?;
    }
    // Whoever revoked it has written into it. And of what a transaction makes the server does not tell the number, but of what it changes: it is
    // the same one.
    writer.add_set_data(path, &[], Some(0)).map_err(failed)?;
    writer.add_delete(path, None).map_err(failed)?;
    writer.add_create(path, &data.encode(), &options).map_err(failed)?;
    match writer.commit().await {
        Ok(done) => {
            let number = done.iter().find_map(|done| match done {
                MultiWriteResult::SetData { stat } => Some(stat.mzxid),
                _ => None,
            });
            let number = number.ok_or_else(|| failed(Error::RuntimeInconsistent))?;
            Ok(Some(FencingToken::new(number.cast_unsigned())))
        }
        Err(MultiWriteError::OperationFailed { index: 0, source: Error::NodeExists }) if gone.is_some() => Ok(None),
        Err(e) => match Error::from(e) {
            Error::NoNode | Error::BadVersion => {
                Err(ended().advice("its place in the queue was removed or revoked; try again"))
            }
            e => Err(failed(e)),
        },
    }
}
