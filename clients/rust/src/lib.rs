//! A client of Baton's gRPC API: whole answers and streams, which go on after a cut, retries that wait as long as the server asks, errors with
//! reasons.

mod answer;
mod client;
mod error;

/// The messages of the API, and its plain client.
#[allow(clippy::all, missing_docs)]
pub mod v1 {
    tonic::include_proto!("baton.v1");
}

pub use answer::{Answer, Part, ToolCall};
pub use client::{Client, Options, Tls};
pub use error::Error;
