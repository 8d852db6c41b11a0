"""What a call that failed says, and whether and when it is worth sending again."""
import time

import grpc
from baton.v1 import status_pb2

_AGAIN = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_FIRST_WAIT = 0.2  # seconds, where the server names none


class BatonError(Exception):
    """A call that failed. code: grpc.StatusCode. reason: a constant for programs, or "". retry_after: seconds, or None where the server names none."""

    def __init__(self, code, message, reason="", retry_after=None):
        super().__init__(f"{code.name}: {message}")
        self.code, self.message, self.reason, self.retry_after = code, message, reason, retry_after

    @classmethod
    def of(cls, error):
        """Of a grpc.RpcError (or grpc.aio.AioRpcError)."""
        reason, retry_after = "", None
        details = next((value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"), None)
        for one in status_pb2.StatusDetails.FromString(details).details if details else ():
            if one.type_url.endswith("google.rpc.RetryInfo"):
                delay = status_pb2.RetryInfo.FromString(one.value).retry_delay
                retry_after = delay.seconds + delay.nanos / 1e9
            elif one.type_url.endswith("google.rpc.ErrorInfo"):
                reason = status_pb2.ErrorInfo.FromString(one.value).reason
        return cls(error.code(), error.details() or "", reason, retry_after)


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

    def wait_after(self, error):
        """Seconds before the next try. Raises the error if there is none."""
        wait = wait_before_retry(error, self._attempt, self._attempts, self.left())
        if wait is None:
            raise error
        return wait
