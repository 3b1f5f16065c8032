//! Whatever another node asks or answers: a message or an error, never a panic, and no memory beyond what it says.
#![no_main]

use helenus::cluster::message::ClusterRequest;
use helenus_execution::coordinator::replica::message::ReplicaRequest;
use helenus::streaming::message::StreamRequest;
use helenus_internode::service::{ServiceRequest, decode_request, decode_response, split_request};
use libfuzzer_sys::fuzz_target;

fn decode<R: ServiceRequest>(id: u32, request: &[u8], message: &[u8]) {
    if id == R::ID {
        decode_request::<R>(request).ok();
    }
    decode_response::<R>(message).ok();
}

fuzz_target!(|message: &[u8]| {
    let Ok((id, request)) = split_request(message) else { return };
    decode::<ReplicaRequest>(id, request, message);
    decode::<ClusterRequest>(id, request, message);
    decode::<StreamRequest>(id, request, message);
});
