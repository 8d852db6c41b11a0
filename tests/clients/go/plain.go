// Makes calls by plain gRPC, as lines of JSON on standard input say, and tells in lines of JSON how they go: "headers", "first" (message) and "end".
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	_ "baton.example/go/baton/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	_ "google.golang.org/grpc/health"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

type command struct {
	Op, Method              string
	ID                      int
	Request                 []byte
	DeadlineNs              int64 `json:"deadline_ns"`
	Metadata                [][2]string
	Gzip, Stall, Wait, Keep bool
}

type settings struct {
	Address, CA, Cert, Key string
	Addresses              []string
	MaxReceive             int    `json:"max_receive"`
	ServiceConfig          string `json:"service_config"`
	KeepaliveSeconds       int    `json:"keepalive_seconds"`
	TLS10                  bool
}

var output sync.Mutex

func tell(event map[string]any) {
	output.Lock()
	defer output.Unlock()
	check(json.NewEncoder(os.Stdout).Encode(event))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func plain(md metadata.MD) map[string]string {
	flat := map[string]string{}
	for key, values := range md {
		flat[key] = values[0]
		if strings.HasSuffix(key, "-bin") {
			flat[key] = base64.StdEncoding.EncodeToString([]byte(values[0]))
		}
	}
	return flat
}

func transport(s settings) credentials.TransportCredentials {
	if s.CA == "" {
		return insecure.NewCredentials()
	}
	pem, err := os.ReadFile(s.CA)
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	if s.TLS10 {
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}
	return credentials.NewTLS(config)
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	check(err)
	return kind.New().Interface()
}

// run makes one call, of a generated type of message if the method is known.
func run(ctx context.Context, connection *grpc.ClientConn, c command, read chan struct{}) {
	var request, answer proto.Message
	name := protoreflect.FullName(strings.ReplaceAll(c.Method, "/", "."))
	if found, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		method := found.(protoreflect.MethodDescriptor)
		request, answer = newMessage(method.Input()), newMessage(method.Output())
		check(proto.Unmarshal(c.Request, request))
	} else {
		empty, _ := protoregistry.GlobalTypes.FindMessageByName("baton.v1.ListModelsRequest")
		request, answer = empty.New().Interface(), empty.New().Interface()
	}
	for _, pair := range c.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, pair[0], pair[1])
	}
	if c.DeadlineNs != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.DeadlineNs))
		defer cancel()
	}
	options := []grpc.CallOption{grpc.WaitForReady(c.Wait)}
	if c.Gzip {
		options = append(options, grpc.UseCompressor(gzip.Name))
	}
	count, kept, last := 0, []string{}, ""
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+c.Method, options...)
	var header, trailer metadata.MD
	if err == nil {
		if err = stream.SendMsg(request); err == nil || errors.Is(err, io.EOF) {
			stream.CloseSend()
			header, err = stream.Header()
			tell(map[string]any{"id": c.ID, "event": "headers", "headers": plain(header)})
		}
		for err == nil {
			if err = stream.RecvMsg(answer); err != nil {
				break
			}
			bytes, _ := proto.Marshal(answer)
			last = base64.StdEncoding.EncodeToString(bytes)
			if count++; c.Keep {
				kept = append(kept, last)
			}
			if count == 1 {
				tell(map[string]any{"id": c.ID, "event": "first"})
				if c.Stall {
					<-read
				}
			}
		}
		trailer = stream.Trailer()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	said := status.Convert(err)
	tell(map[string]any{"id": c.ID, "event": "end", "code": int(said.Code()), "message": said.Message(), "headers": plain(header), "trailers": plain(trailer), "count": count, "last": last, "kept": kept})
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	next := func(into any) bool {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return false
		}
		check(json.Unmarshal(line, into))
		return true
	}
	var s settings
	next(&s)
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport(s))}
	if s.MaxReceive > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.MaxReceive)))
	}
	if s.ServiceConfig != "" {
		options = append(options, grpc.WithDefaultServiceConfig(s.ServiceConfig))
	}
	if s.KeepaliveSeconds > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Duration(s.KeepaliveSeconds) * time.Second, PermitWithoutStream: true}))
	}
	target := s.Address
	if len(s.Addresses) > 0 {
		all := manual.NewBuilderWithScheme("all")
		state := resolver.State{}
		for _, address := range s.Addresses {
			state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
		}
		all.InitialState(state)
		options = append(options, grpc.WithResolvers(all))
		target = "all:///routers"
	}
	connection, err := grpc.NewClient(target, options...)
	check(err)
	cancels, reads := map[int]context.CancelFunc{}, map[int]chan struct{}{}
	for c := (command{}); next(&c); c = (command{}) {
		switch c.Op {
		case "call":
			ctx, cancel := context.WithCancel(context.Background())
			cancels[c.ID], reads[c.ID] = cancel, make(chan struct{}, 1)
			go run(ctx, connection, c, reads[c.ID])
		case "cancel":
			cancels[c.ID]()
		case "read":
			reads[c.ID] <- struct{}{}
		case "close":
			connection.Close()
		}
	}
}
