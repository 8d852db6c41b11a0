"""What a call that failed says, and whether and when it is worth sending again."""
import time

import grpc
from google.rpc import error_details_pb2, status_pb2

_AGAIN = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_FIRST_WAIT = 0.2  # seconds, where the server names none


class BatonError(Exception):
    """A call that failed. code: grpc.StatusCode. reason: for programs, a name of baton.v1.Reason without its prefix, or "". metadata: of the reason.
    field: the path of the field that is wrong, or "". retry_after: seconds, or None where the server names none. request_id: the name of the request in
    the logs of the service, or ""."""

    def __init__(self, code, message, reason="", retry_after=None, metadata=None, field="", request_id=""):
        super().__init__(f"{code.name}: {message}")
        self.code, self.message, self.reason, self.retry_after = code, message, reason, retry_after
        self.metadata, self.field, self.request_id = metadata or {}, field, request_id

    @classmethod
    def of(cls, error):
        """Of a grpc.RpcError (or grpc.aio.AioRpcError)."""
        found = {}
        details = next((value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"), None)
        for one in status_pb2.Status.FromString(details).details if details else ():
            for kind in (error_details_pb2.RetryInfo, error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RequestInfo):
                if one.Is(kind.DESCRIPTOR):
                    found[kind] = kind.FromString(one.value)
        info = found.get(error_details_pb2.ErrorInfo, error_details_pb2.ErrorInfo())
        delay = found[error_details_pb2.RetryInfo].retry_delay if error_details_pb2.RetryInfo in found else None
        violations = found.get(error_details_pb2.BadRequest, error_details_pb2.BadRequest()).field_violations
        return cls(
            error.code(),
            error.details() or "",
            info.reason,
            None if delay is None else delay.seconds + delay.nanos / 1e9,
            dict(info.metadata),
            violations[0].field if violations else "",
            found.get(error_details_pb2.RequestInfo, error_details_pb2.RequestInfo()).request_id,
        )


def wait_before_retry(error, attempt, attempts, left):
    """Seconds to wait before the request is sent again after `error`, the `attempt`th of `attempts` tries; None: it is not. left: seconds until the
    deadline, or None."""
    if error.code not in _AGAIN or attempt >= attempts:
        return None
    wait = error.retry_after if error.retry_after is not None else _FIRST_WAIT * 2 ** (attempt - 1)
    return None if left is not None and wait >= left else wait


class Tries:
    """The tries of one request, within its deadline."""

    def __init__(self, attempts, timeout):
        self._attempts, self._end = attempts, None if timeout is None else time.monotonic() + timeout
        self._attempt = 0

    def left(self):
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def begin(self):
        self._attempt += 1
        return self.left()

    def go_well(self):
        """Something came: the tries are counted from here."""
        self._attempt = 1

    def wait_after(self, error):
        """Seconds before the next try. Raises the error if there is none."""
        wait = wait_before_retry(error, self._attempt, self._attempts, self.left())
        if wait is None:
            raise error
        return wait
