// Bytes of every message in table.txt, made and read by runtimes of npm.
//
//   node wire.mjs make TABLE    writes lines "message/variant hex", with protobufjs
//   node wire.mjs echo TABLE    reads such lines, decodes and encodes each, with protobufjs
//   node wire.mjs echo gen      the same with @bufbuild/protobuf and what protoc-gen-es made
//   node wire.mjs keep gen      the same, and fields that nobody knows stay, as is its default
//
// The working directory is a folder that prepare made. protobufjs gets its types from the
// table, and so knows nothing of the .proto files. With echo, both runtimes leave out fields
// that they do not know, so that a number or a type that differs is seen as a loss.
import { createRequire } from "node:module";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , verb, source] = process.argv;
const require = createRequire(join(process.cwd(), "package.json"));

// table reads the table: the messages and enums by name, in its order.
function table(path) {
	const all = new Map();
	for (const section of readFileSync(path, "utf8").trim().split("\n\n")) {
		const [head, ...lines] = section.split("\n");
		const [kind, name] = head.split(" ");
		if (kind === "service") continue;
		const rows = lines.map(l => l.trim().split(" ")).filter(w => w[0] !== "reserved");
		all.set(name, { kind, name, rows });
	}
	return all;
}

// root makes types of protobufjs from a table, by way of a text in protobuf's language.
function root(all) {
	const pb = require("protobufjs");
	const root = new pb.Root();
	// The JSON types, as far as the values here go.
	pb.parse(`syntax = "proto3"; package google.protobuf;
		message Value { oneof kind { string string_value = 3; } }
		message Struct { map<string, Value> fields = 1; }`, root, { keepCase: true });
	const tops = [...all.keys()].filter(name => !all.has(name.replace(/\.\w+$/, "")));
	for (const pkg of new Set(tops.map(name => name.replace(/\.\w+$/, "")))) {
		const text = tops.filter(name => name.startsWith(pkg + ".")).map(name => declare(all, name)).join("\n");
		pb.parse(`syntax = "proto3"; package ${pkg};\n${text}`, root, { keepCase: true });
	}
	root.resolveAll();
	return root;
}

// declare is a message or an enum with what is nested in it.
function declare(all, name) {
	const { kind, rows } = all.get(name);
	const last = name.split(".").at(-1);
	if (kind === "enum") return `enum ${last} {${rows.map(([n, v]) => `${v} = ${n};`).join(" ")}}`;
	const inside = [...all.keys()].filter(other => other.replace(/\.\w+$/, "") === name).map(other => declare(all, other));
	// Names begin with a dot: a message may be called like something nearer.
	const full = type => type.replace(/[\w.]*\.\w+/, ".$&");
	const oneofs = {};
	for (const [n, field, type, label, oneof] of rows) {
		const line = `${label === "repeated" || label === "optional" ? label : ""} ${full(type)} ${field} = ${n};`;
		if (label === "oneof") (oneofs[oneof] ??= []).push(line);
		else inside.push(line);
	}
	for (const [oneof, lines] of Object.entries(oneofs)) inside.push(`oneof ${oneof} {${lines.join(" ")}}`);
	return `message ${last} {\n${inside.join("\n")}\n}`;
}

// value is what a field of a type has: wire_test.go says the same.
function value(all, kind, number, name, depth) {
	switch (kind) {
		case "string": return name + " é";
		case "bytes": return Buffer.from([0, number & 255, 255]);
		case "bool": return true;
		case "double": return number + 0.5;
		case "int32": return -number;
		case "uint32": return 0x80000000 + number;
		case "int64": return long(-(BigInt(number) << 40n) - 1n);
		case "uint64": return long((1n << 63n) + BigInt(number));
		case "google.protobuf.Value": return { string_value: name };
		case "google.protobuf.Struct": return { fields: { [name]: { string_value: name } } };
	}
	const type = all.get(kind);
	if (type.kind === "enum") return 1000 + number; // a value that nobody knows
	return depth > 0 ? full(all, type, 0, depth - 1) : {};
}

function long(big) {
	const Long = require("protobufjs").util.Long;
	return Long.fromString(BigInt.asIntN(64, big).toString());
}

// full is a message with all fields, and of each oneof the case of that variant.
function full(all, type, variant, depth) {
	const message = {};
	const cases = {};
	for (const [, name, , label, oneof] of type.rows) if (label === "oneof") (cases[oneof] ??= []).push(name);
	for (const [n, name, kind, label, oneof] of type.rows) {
		const number = Number(n);
		const map = /^map<string,(.+)>$/.exec(kind);
		if (label === "oneof" && cases[oneof][variant % cases[oneof].length] !== name) continue;
		if (label !== "oneof" && variant > 0) continue; // once is enough
		if (map) message[name] = { [name]: value(all, map[1], number, name, depth) };
		else if (label === "repeated") message[name] = [0, 1].map(i => value(all, kind, number + i, name, depth));
		else message[name] = value(all, kind, number, name, depth);
	}
	return message;
}

// zero is a message whose fields with explicit presence are there, and have no value.
function zero(type) {
	const nothing = { string: "", bytes: Buffer.alloc(0), bool: false, double: 0, int32: 0, uint32: 0 };
	const message = {};
	let one = false;
	for (const [, name, kind, label] of type.rows) {
		if (label === "optional" && kind in nothing) message[name] = nothing[kind];
		if (label === "oneof" && kind in nothing && !one) one = !!(message[name] = nothing[kind], true);
	}
	return Object.keys(message).length ? message : undefined;
}

function make(all) {
	const types = root(all);
	for (const type of all.values()) {
		if (type.kind !== "message") continue;
		const codec = types.lookupType(type.name);
		const counts = {};
		for (const [, , , label, oneof] of type.rows) if (label === "oneof") counts[oneof] = (counts[oneof] ?? 0) + 1;
		const variants = Math.max(1, ...Object.values(counts));
		for (let v = 0; v < variants; v++) print(`${type.name}/${v}`, codec.encode(full(all, type, v, 1)).finish());
		const none = zero(type);
		if (none) print(`${type.name}/zero`, codec.encode(none).finish());
	}
}

const out = [];
const print = (name, bytes) => out.push(`${name} ${Buffer.from(bytes).toString("hex")}`.trim() + "\n");

// generated is a registry of what protoc-gen-es made.
async function generated(dir) {
	const { createRegistry, fromBinary, toBinary } = await import(pathToFileURL(require.resolve("@bufbuild/protobuf")));
	const files = [];
	for (const path of readdirSync(dir, { recursive: true })) {
		if (!path.endsWith("_pb.js")) continue;
		const module = await import(pathToFileURL(join(process.cwd(), dir, path)));
		files.push(...Object.values(module).filter(x => x?.kind === "file"));
	}
	const registry = createRegistry(...files);
	return (name, bytes) => {
		const desc = registry.getMessage(name);
		if (!desc) throw new Error(`protoc-gen-es made no ${name}`);
		return toBinary(desc, fromBinary(desc, bytes, { readUnknownFields: verb === "keep" }));
	};
}

async function echo(source) {
	let again;
	if (source === "gen") {
		again = await generated(source);
	} else {
		const types = root(table(source));
		again = (name, bytes) => {
			const type = types.lookupType(name);
			return type.encode(type.decode(bytes)).finish();
		};
	}
	for (const line of readFileSync(0, "utf8").trim().split("\n")) {
		const [name, hex = ""] = line.split(" ");
		print(name, again(name.split("/")[0], Buffer.from(hex, "hex")));
	}
}

if (verb === "make") make(table(source));
else if (verb === "echo" || verb === "keep") await echo(source);
else throw new Error("make, echo or keep");
process.stdout.write(out.join(""));
