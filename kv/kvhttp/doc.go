// Package kvhttp carries the streams of package kv over HTTP/2: as a server, to
// clients of gRPC and of Connect alike, and as a client of either.
//
// The service is agentrun.kv.v1.KvService: who dials asks (KvServerMessage), who
// listens answers (KvClientMessage). NewHandler and Open carry any other stream of
// one message type each way, such as agent.v1.AgentService/Run.
//
// The envelopes are written by hand, so that all that is queued leaves with one flush;
// the generated handlers of Connect flush each message.
//
// # What is spoken
//
// POST over HTTP/2 (HTTP/1 is answered 505: it cannot stream both ways), content types
// application/grpc, application/grpc+proto and application/connect+proto; others are
// answered 415. Messages from clients may be compressed with gzip, other codings are
// refused as unimplemented; nothing is compressed here. grpc-timeout and
// connect-timeout-ms end the stream with deadline_exceeded. Errors, that of a missing
// token too, are the protocol's own: the trailers grpc-status and grpc-message, or the
// last message of a Connect stream.
//
// # Who may connect
//
// Without TLS only on a loopback address; beyond it TLS, and client certificates or a
// bearer token. A token comes from a file or the environment and is compared in
// constant time.
package kvhttp
