// The key-value stream as peers speak it: node, Connect's client and server, and what
// protoc-gen-es makes of proto/.
//
//   node kv.mjs ask connect|grpc|grpc-js URL    asks the store behind KvService.Serve
//   node kv.mjs serve                           serves a store of its own, in memory
//
// grpc-js is the client that gRPC's own project has for node, with messages that it makes
// of the .proto files as it begins.
//
// The working directory is a folder that prepare made. ask reads requests from its standard
// input, a JSON object a line, {"id", "get": HEX} or {"id", "set": HEX, "data": HEX}, sends
// each at once, and writes what is answered in the order in which it comes, {"id", "data"},
// {"id", "absent": true}, {"id", "set": true}, each with an "error" if there was one. It
// ends its half of the stream with its input. serve listens on a port of 127.0.0.1 that it
// writes as its first line, speaks HTTP/2 in the clear, and ends with its input; below
// each path /NUMBER is another store. What is set under an id that is not the SHA-256 of the
// bytes is an error.
import { createRequire } from "node:module";
import { createHash } from "node:crypto";
import { createServer } from "node:http2";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "package.json"));
const load = path => import(pathToFileURL(require.resolve(path)));
const [{ create }, { createClient }, node, kv, { KvService }] = await Promise.all([
	load("@bufbuild/protobuf"), load("@connectrpc/connect"), load("@connectrpc/connect-node"),
	load("./gen/agent/v1/kv_pb.js"), load("./gen/agentrun/kv/v1/kv_pb.js"),
]);
const bytes = hex => new Uint8Array(Buffer.from(hex, "hex"));
const hex = bytes => Buffer.from(bytes).toString("hex");
const print = object => process.stdout.write(JSON.stringify(object) + "\n");

// requested reads the requests of the standard input.
async function* requested() {
	for await (const line of createInterface({ input: process.stdin })) yield JSON.parse(line);
}

async function askByGRPC(baseUrl) {
	const [grpc, loader] = ["@grpc/grpc-js", "@grpc/proto-loader"].map(name => require(name));
	const root = fileURLToPath(new URL("..", import.meta.url));
	const definition = await loader.load("agentrun/kv/v1/kv.proto", { includeDirs: [root], keepCase: true, oneofs: true });
	const { KvService } = grpc.loadPackageDefinition(definition).agentrun.kv.v1;
	const unlimited = { "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 };
	const stream = new KvService(new URL(baseUrl).host, grpc.credentials.createInsecure(), unlimited).Serve();
	const ended = new Promise((resolve, reject) => stream.on("end", resolve).on("error", reject));
	stream.on("data", ({ id, message, get_blob_result: got, set_blob_result: stored }) => {
		const error = (got ?? stored)?.error?.message;
		if (message === "get_blob_result") print({ id, ...(got.blob_data ? { data: hex(got.blob_data) } : { absent: true }), error });
		else if (message === "set_blob_result") print({ id, set: true, error });
		else print({ id, unknown: true });
	});
	for await (const { id, get, set, data } of requested()) {
		stream.write(get !== undefined
			? { id, get_blob_args: { blob_id: bytes(get) } }
			: { id, set_blob_args: { blob_id: bytes(set), blob_data: bytes(data) } });
	}
	stream.end();
	await ended;
}

async function ask(protocol, baseUrl) {
	if (protocol === "grpc-js") return askByGRPC(baseUrl);
	const options = { baseUrl, httpVersion: "2" };
	const transport = protocol === "grpc" ? node.createGrpcTransport(options) : node.createConnectTransport(options);
	async function* requests() {
		for await (const { id, get, set, data } of requested()) {
			yield create(kv.KvServerMessageSchema, {
				id,
				message: get !== undefined
					? { case: "getBlobArgs", value: { blobId: bytes(get) } }
					: { case: "setBlobArgs", value: { blobId: bytes(set), blobData: bytes(data) } },
			});
		}
	}
	for await (const { id, message } of createClient(KvService, transport).serve(requests())) {
		const error = message.value?.error?.message;
		switch (message.case) {
			case "getBlobResult": {
				const data = message.value.blobData;
				print({ id, ...(data ? { data: hex(data) } : { absent: true }), error });
				break;
			}
			case "setBlobResult":
				print({ id, set: true, error });
				break;
			default:
				print({ id, unknown: true });
		}
	}
}

// served is the service over a store of its own.
function served() {
	const store = new Map();
	const answer = message => {
		const { blobId, blobData } = message.value;
		if (message.case === "getBlobArgs") return { case: "getBlobResult", value: { blobData: store.get(hex(blobId)) } };
		const right = createHash("sha256").update(blobData).digest("hex") === hex(blobId);
		if (right) store.set(hex(blobId), blobData);
		return { case: "setBlobResult", value: right ? {} : { error: { message: "the bytes do not hash to the id" } } };
	};
	return node.connectNodeAdapter({
		routes: router => router.service(KvService, {
			async *serve(requests) {
				for await (const { id, message } of requests) {
					yield create(kv.KvClientMessageSchema, { id, message: answer(message) });
				}
			},
		}),
	});
}

function serve() {
	const stores = new Map();
	const server = createServer((request, response) => {
		const [, prefix, path] = /^((?:\/\d+)?)(\/.*)$/.exec(request.url);
		if (!stores.has(prefix)) stores.set(prefix, served());
		request.url = path;
		stores.get(prefix)(request, response);
	});
	server.listen(0, "127.0.0.1", () => process.stdout.write(`127.0.0.1:${server.address().port}\n`));
	process.stdin.on("end", () => process.exit()).resume();
}

const [, , verb, ...rest] = process.argv;
if (verb === "ask") await ask(...rest);
else if (verb === "serve") serve();
else throw new Error("ask or serve");
