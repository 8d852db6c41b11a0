//! The error of a call, and the tries that follow it.
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const FIRST_WAIT: Duration = Duration::from_millis(200); // where the server names none

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Error {
    pub code: Code,
    /// For people.
    pub message: String,
    /// For programs: a name of baton.v1.Reason without its prefix, or empty.
    pub reason: String,
    /// More about the reason.
    pub metadata: HashMap<String, String>,
    /// Path of the field that is wrong, or empty.
    pub field: String,
    /// None: the server names none.
    pub retry_after: Option<Duration>,
    /// The server says that the same request never passes.
    pub is_final: bool,
    /// Names the request in the logs of the service, or empty.
    pub request_id: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        // tonic has no code of its own for a connection that broke: such a status has a source, and none of the server's.
        let broke = matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled) && std::error::Error::source(&status).is_some();
        let of_trailer = |key: &str| status.metadata().get(key).and_then(|value| value.to_str().ok());
        let pushback = of_trailer("grpc-retry-pushback-ms").map(|wait| wait.parse::<u64>().map(Duration::from_millis));
        let details = status.get_error_details();
        let (info, request) = (details.error_info(), details.request_info());
        let violation = details.bad_request().and_then(|bad| bad.field_violations.first());
        Error {
            code: if broke { Code::Unavailable } else { status.code() },
            message: status.message().into(),
            reason: info.map(|info| info.reason.clone()).unwrap_or_default(),
            metadata: info.map(|info| info.metadata.clone()).unwrap_or_default(),
            field: violation.map(|violation| violation.field.clone()).unwrap_or_default(),
            retry_after: details.retry_info().and_then(|info| info.retry_delay).or(pushback.clone().and_then(Result::ok)),
            is_final: matches!(pushback, Some(Err(_))),
            request_id: request.map_or(of_trailer("baton-request-id").unwrap_or_default().into(), |request| request.request_id.clone()),
        }
    }
}

/// The tries of one request, within its time.
pub(crate) struct Tries {
    most: u32,
    count: u32,
    pub end: Option<Instant>,
}

impl Tries {
    pub fn new(most: u32, timeout: Option<Duration>) -> Tries {
        Tries { most, count: 0, end: timeout.map(|timeout| Instant::now() + timeout) }
    }

    pub fn begin(&mut self) {
        self.count += 1;
    }

    /// Something came: the tries are counted from here.
    pub fn go_well(&mut self) {
        self.count = 1;
    }

    /// The future's result, or an error once the time is over.
    pub async fn within<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Error> {
        match self.end {
            None => Ok(call.await?),
            Some(end) => match tokio::time::timeout_at(end, call).await {
                Ok(result) => Ok(result?),
                Err(_) => Err(Status::deadline_exceeded("the client's time is over").into()),
            },
        }
    }

    /// Waits before the next try. Gives the error back if there is none.
    pub async fn wait(&self, error: Error) -> Result<(), Error> {
        let wait = error.retry_after.unwrap_or(FIRST_WAIT * 2u32.saturating_pow(self.count - 1));
        let again = matches!(error.code, Code::ResourceExhausted | Code::Unavailable) && !error.is_final && self.count < self.most;
        if !again || self.end.is_some_and(|end| Instant::now() + wait >= end) {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }
}
