// Package kv carries blobs over a stream of messages: the key-value protocol of
// agent.v1, in which one side asks (KvServerMessage: get a blob, set a blob) and the
// other answers (KvClientMessage), each answer with the id of its request, in any
// order.
//
// [Controlled] answers from a blobstore.Store. [Remote] is a blobstore.Store that
// asks. Both speak over a [Stream], which brings whole messages: over pipes
// ([NewStream]), in one process ([Pipe]), over HTTP/2 (package kv/kvhttp), or inside
// the messages of agent.v1.AgentService ([InAgentClient], [InAgentServer]). The names of
// agent.v1 are those of its own use, where the server of a model asks the client for
// blobs: "server" is who asks, whoever dialled.
//
// # What is answered, and what is not
//
// A request never ends the stream, however it fails:
//
//   - A blob that is not there is answered with a result without data; an empty
//     blob with data of length 0.
//   - A get that fails is answered with an error and without data: a peer that does
//     not know the error reads "absent".
//   - A blob id that is not 32 bytes: a get is answered as absent, a set with an
//     error. Id 0 of a request is an id; it is absent on the wire, in the answer too.
//   - Bytes that do not hash to their id are refused, unless the store is
//     blobstore.Opaque.
//   - A request, or an answer, over the limit of size is answered with an error; the
//     bytes are passed by. Its id is what stands before the blob, where all peers write
//     it, and 0 where nothing does; it is not answered when that id is in progress.
//   - A request whose id is that of one in progress is answered with an error and
//     not carried out: the asker cannot tell two answers apart.
//   - A request of a case that is not known here, and a message that is no protobuf,
//     are passed by unanswered, as all peers do, and counted.
//   - Requests in progress when the asker ends its side are finished and answered.
//     When the stream breaks they are cancelled.
//
// Remote passes by answers to requests that it does not wait for (late, duplicate,
// invented) and counts them. It believes no bytes: in mode blobstore.Verified what
// does not hash to its id is blobstore.ErrCorrupt.
//
// # When the stream breaks
//
// Remote dials again when something is to be asked, and asks again what was not
// answered: both requests can be repeated. A peer that was never there fails calls at
// once; one that went away is dialled for a while (RemoteOptions.DialPatience), so that
// a short restart loses none. Each call returns once. A set whose
// acknowledgement was lost is stored twice, which is storing it once; but where the
// other side is blobstore.Opaque and still carries out what came over the broken
// stream, that may come behind a later set of other bytes under the same id.
package kv
