//! What the targets share.

use cosm_proto::frame;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Whatever is read as a message reads back as the same one: what one end means is what the other sees.
pub fn reads_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(payload: &[u8]) {
    let Ok(message) = frame::parse::<T>(payload) else {
        return;
    };
    // A short payload can hold many empty things; what is too long to be sent was not sent by us.
    let Ok(bytes) = frame::message(&message) else {
        return;
    };
    assert_eq!(
        frame::parse::<T>(&bytes[frame::HEADER..]).as_ref(),
        Ok(&message)
    );
}
