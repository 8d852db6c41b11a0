package baton

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Error is a call that failed.
type Error struct {
	Code       codes.Code
	Message    string            // for people
	Reason     string            // for programs: a name of baton.v1.Reason without its prefix, or ""
	Metadata   map[string]string // of the reason
	Field      string            // path of the field that is wrong, or ""
	RetryAfter *time.Duration    // nil: the server names none
	Final      bool              // the server says that the same request never passes
	RequestID  string            // names the request in the logs of the service, or ""
	status     *status.Status
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Code, e.Message) }

// GRPCStatus lets status.FromError and status.Code understand it.
func (e *Error) GRPCStatus() *status.Status { return e.status }

func errorOf(err error, trailer metadata.MD) *Error {
	s := status.Convert(err)
	e := &Error{Code: s.Code(), Message: s.Message(), status: s}
	if ids := trailer.Get("baton-request-id"); len(ids) > 0 {
		e.RequestID = ids[0]
	}
	if waits := trailer.Get("grpc-retry-pushback-ms"); len(waits) > 0 {
		if wait, err := strconv.Atoi(waits[0]); err != nil || wait < 0 {
			e.Final = true
		} else {
			e.RetryAfter = delay(time.Duration(wait) * time.Millisecond)
		}
	}
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason, e.Metadata = detail.Reason, detail.Metadata
		case *errdetails.BadRequest:
			if len(detail.FieldViolations) > 0 {
				e.Field = detail.FieldViolations[0].Field
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = delay(detail.RetryDelay.AsDuration())
		case *errdetails.RequestInfo:
			e.RequestID = detail.RequestId
		}
	}
	return e
}

func delay(wait time.Duration) *time.Duration { return &wait }

// tries counts the tries of one request.
type tries struct{ most, count int }

func (t *tries) begin() { t.count++ }

// goWell: something came, so the tries are counted from here.
func (t *tries) goWell() { t.count = 1 }

// wait waits before the next try. It gives the error back if there is none.
func (t *tries) wait(ctx context.Context, failed *Error) error {
	if (failed.Code != codes.ResourceExhausted && failed.Code != codes.Unavailable) || failed.Final || t.count >= t.most {
		return failed
	}
	wait := firstWait << (t.count - 1)
	if failed.RetryAfter != nil {
		wait = *failed.RetryAfter
	}
	if end, bounded := ctx.Deadline(); bounded && wait >= time.Until(end) {
		return failed
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return failed
	}
}
