"""What a call that failed says, and whether and when it is worth sending again."""
import time

import grpc
from google.rpc import error_details_pb2, status_pb2

_AGAIN = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_FIRST_WAIT = 0.2  # seconds, where the server names none


class BatonError(Exception):
    """A call that failed. code: grpc.StatusCode. reason: for programs, a name of baton.v1.Reason without its prefix, or "". metadata: of the reason.
    field: the path of the field that is wrong, or "". retry_after: seconds, or None where the server names none. final: the server says that the same
    request never passes. request_id: the name of the request in the logs of the service, or ""."""

    def __init__(self, code, message, reason="", retry_after=None, metadata=None, field="", request_id="", final=False):
        super().__init__(f"{code.name}: {message}")
        self.code, self.message, self.reason, self.retry_after = code, message, reason, retry_after
        self.metadata, self.field, self.request_id, self.final = metadata or {}, field, request_id, final

    @classmethod
    def of(cls, error):
        """Of a grpc.RpcError (or grpc.aio.AioRpcError)."""
        found, trailer = {}, dict(error.trailing_metadata() or ())
        details, pushback = trailer.get("grpc-status-details-bin"), _milliseconds(trailer.get("grpc-retry-pushback-ms"))
        for one in status_pb2.Status.FromString(details).details if details else ():
            for kind in (error_details_pb2.RetryInfo, error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RequestInfo):
                if one.Is(kind.DESCRIPTOR):
                    found[kind] = kind.FromString(one.value)
        info = found.get(error_details_pb2.ErrorInfo, error_details_pb2.ErrorInfo())
        delay = found[error_details_pb2.RetryInfo].retry_delay if error_details_pb2.RetryInfo in found else None
        pushed = pushback / 1e3 if pushback is not None and pushback >= 0 else None
        violations = found.get(error_details_pb2.BadRequest, error_details_pb2.BadRequest()).field_violations
        return cls(
            error.code(),
            error.details() or "",
            info.reason,
            pushed if delay is None else delay.seconds + delay.nanos / 1e9,
            dict(info.metadata),
            violations[0].field if violations else "",
            found.get(error_details_pb2.RequestInfo, error_details_pb2.RequestInfo()).request_id,
            pushback is not None and pushback < 0,
        )


def _milliseconds(pushback):
    """Of the trailer grpc-retry-pushback-ms, or None where there is none. Below 0: never; also where it is no number, as gRPC has it."""
    if pushback is None:
        return None
    try:
        return int(pushback)
    except ValueError:
        return -1


def wait_before_retry(error, attempt, attempts, left):
    """Seconds to wait before the request is sent again after `error`, the `attempt`th of `attempts` tries; None: it is not. left: seconds until the
    deadline, or None."""
    if error.code not in _AGAIN or error.final or attempt >= attempts:
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
