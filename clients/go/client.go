// Package baton is a client of Baton's gRPC API: whole answers and streams, which go on after a cut, retries that wait as long as the server
// asks, errors with reasons. The messages of the API are in baton.example/go/baton/v1, made by `go generate`.
package baton

//go:generate protoc -I ../../proto --go_out=. --go_opt=module=baton.example/go --go-grpc_out=. --go-grpc_opt=module=baton.example/go baton/v1/errors.proto baton/v1/generation.proto baton/v1/inference.proto

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"time"

	pb "baton.example/go/baton/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	maxAnswerBytes = 16 << 20
	firstWait      = 200 * time.Millisecond // where the server names none
	seedBits       = 52                     // a double holds it
)

// Options of a Client. The zero value connects in plain text, without a key.
type Options struct {
	Key      string            // the tenant's API key
	TLS      bool              // with the system's roots, unless Roots has others
	Roots    []byte            // PEM of who signs the server's certificate; implies TLS
	Attempts int               // how often a request is sent, or gone on with, before something comes; 0: 4
	Dial     []grpc.DialOption // more of gRPC's, such as grpc.WithStatsHandler(otelgrpc.NewClientHandler()) for OpenTelemetry
}

// Client may be used by any number of goroutines. RPC has the methods that it does not wrap; Authorize gives them the key.
type Client struct {
	RPC        pb.InferenceClient
	connection *grpc.ClientConn
	key        string
	attempts   int
}

// New makes a Client of a gRPC target, such as "host:8470" or "dns:///name:8470". It connects at the first call.
func New(target string, options Options) (*Client, error) {
	transport := insecure.NewCredentials()
	if options.TLS || options.Roots != nil {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if options.Roots != nil {
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(options.Roots) {
				return nil, errors.New("baton: Options.Roots has no certificate in PEM")
			}
		}
		transport = credentials.NewTLS(config)
	}
	dial := append([]grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes + 1<<20)),
	}, options.Dial...)
	connection, err := grpc.NewClient(target, dial...)
	if err != nil {
		return nil, err
	}
	attempts := options.Attempts
	if attempts == 0 {
		attempts = 4
	}
	return &Client{pb.NewInferenceClient(connection), connection, options.Key, attempts}, nil
}

// Close ends all calls.
func (c *Client) Close() error { return c.connection.Close() }

// Authorize gives calls under the context the client's key.
func (c *Client) Authorize(ctx context.Context) context.Context {
	if c.key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.key)
}

// Ask makes a request of a text of the user's.
func Ask(text string) *pb.ChatRequest {
	return &pb.ChatRequest{Conversation: &pb.Conversation{Messages: []*pb.Message{{Role: "user", Content: text}}}}
}

// Complete gives the whole answer. The context's deadline bounds all tries together. An error of the service is an *Error.
func (c *Client) Complete(ctx context.Context, request *pb.ChatRequest) (*Answer, error) {
	whole := &pb.ChatUnaryRequest{Chat: named(request), MaxAnswerBytes: maxAnswerBytes}
	for tries := (tries{most: c.attempts}); ; {
		var trailer metadata.MD
		tries.begin()
		answer, err := c.RPC.ChatUnary(c.Authorize(ctx), whole, grpc.Trailer(&trailer))
		if err == nil {
			return answerOf(answer), nil
		}
		if err := tries.wait(ctx, errorOf(err, trailer)); err != nil {
			return nil, err
		}
	}
}

// Stream gives Text, Thinking and ToolCall as they come, and last the *Answer, or an error, which is an *Error. After a cut it goes on behind
// the last token that came, on whichever router. Leaving the loop cancels the request.
func (c *Client) Stream(ctx context.Context, request *pb.ChatRequest) iter.Seq2[Part, error] {
	request = named(request)
	return func(yield func(Part, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		fold := fold{}
		for tries := (tries{most: c.attempts}); ; {
			tries.begin()
			trailer, err := c.follow(ctx, request, &fold, &tries, yield)
			if errors.Is(err, errLeft) {
				return
			}
			if errors.Is(err, io.EOF) {
				yield(fold.answer, nil)
				return
			}
			if err := tries.wait(ctx, errorOf(err, trailer)); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

var errLeft = errors.New("the caller has left the loop")

// follow reads one call until it ends: io.EOF with a whole answer, errLeft, or the call's error.
func (c *Client) follow(ctx context.Context, request *pb.ChatRequest, fold *fold, tries *tries, yield func(Part, error) bool) (metadata.MD, error) {
	stream, receive, err := c.open(c.Authorize(ctx), request, fold)
	if err != nil {
		return nil, err
	}
	for {
		message, err := receive()
		if errors.Is(err, io.EOF) && fold.answer == nil {
			err = status.Error(codes.Unavailable, "the stream ended before its answer")
		}
		if err != nil {
			return stream.Trailer(), err
		}
		tries.goWell()
		for _, part := range fold.push(message) {
			if !yield(part, nil) {
				return nil, errLeft
			}
		}
	}
}

// event is a message of Chat's stream or of Resume's.
type event interface {
	GetStarted() *pb.Started
	GetDelta() *pb.Delta
	GetFinished() *pb.Finished
}

func (c *Client) open(ctx context.Context, request *pb.ChatRequest, fold *fold) (grpc.ClientStream, func() (event, error), error) {
	if fold.started == nil {
		stream, err := c.RPC.Chat(ctx, request)
		return stream, func() (event, error) { return stream.Recv() }, err
	}
	stream, err := c.RPC.Resume(ctx, resumed(request, fold))
	return stream, func() (event, error) { return stream.Recv() }, err
}

// named copies a request and gives it an idempotency key and a seed, unless it has them: what is sent again takes the answer that was begun, on
// any router.
func named(request *pb.ChatRequest) *pb.ChatRequest {
	made := proto.CloneOf(request)
	if made.Options == nil {
		made.Options = &pb.RequestOptions{}
	}
	if made.Sampling == nil {
		made.Sampling = &pb.SamplingParams{}
	}
	var random [24]byte
	rand.Read(random[:])
	if made.Options.IdempotencyKey == "" {
		made.Options.IdempotencyKey = hex.EncodeToString(random[:16])
	}
	if made.Sampling.Seed == nil {
		made.Sampling.Seed = proto.Uint64(binary.LittleEndian.Uint64(random[16:]) >> (64 - seedBits))
	}
	return made
}

// resumed asks for what follows the tokens that came. The build pins the answer to the bits that it was begun with.
func resumed(request *pb.ChatRequest, fold *fold) *pb.ResumeRequest {
	chat := proto.CloneOf(request)
	if build := fold.started.Build; build != "" {
		chat.Options.Build = build
	}
	return &pb.ResumeRequest{RequestId: fold.started.RequestId, AfterTokens: []uint32{fold.tokens}, Request: &pb.ResumeRequest_Chat{Chat: chat}}
}
