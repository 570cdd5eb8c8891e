// What both programs are asked to do, and what they are asked about a session.
// Each line of standard input is a step, answered by one line on standard output
// before the next one is read.
//
//   {do: "create", cwd, dir}  a new session, in the program's own place for cwd without dir
//   {do: "open", path}        an existing one
//   {do: "append", message}   under the leaf
//   {do: "compact", summary, keep}
//   {do: "branch", id}        moves the leaf
//   {do: "rename", title}
//   {do: "rewrite"}           the whole file, where the program can be asked to
//   {do: "spill", dir, text}  an artifact in that directory: its id, where the program has any
//   {do: "close"}             all is on disk
//   {do: "list", cwd, dir}    the program's own list of sessions
//   {do: "recent", cwd, dir}  the session it would continue there
import { createHash } from "node:crypto";
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";

// Long strings are told by length and hash, so that the answers stay small.
function digest(s) {
	if (typeof s !== "string") return String(s);
	if (s.length <= 200) return s;
	return `${s.length} units, sha256 ${createHash("sha256").update(s).digest("hex")}`;
}

function seen(message) {
	const blocks = Array.isArray(message.content) ? message.content : [];
	const texts = blocks.filter(b => b.type === "text").map(b => b.text);
	if (typeof message.content === "string") texts.push(message.content);
	if (message.role === "bashExecution") texts.push(message.command, message.output);
	if (message.summary !== undefined) texts.push(message.summary);
	return {
		role: message.role,
		text: digest(texts.join("\n")),
		calls: blocks.filter(b => b.type === "toolCall").map(b => digest(`${b.id} ${b.name} ${JSON.stringify(b.arguments)}`)),
		result: message.toolCallId ?? "",
		images: [...blocks.filter(b => b.type === "image"), ...(message.images ?? [])].map(b => digest(b.data)),
	};
}

/** What a program knows of the session that it has open. */
export function view(manager, title) {
	return {
		id: manager.getSessionId(),
		path: manager.getSessionFile(),
		title: title ?? "",
		leaf: manager.getLeafId() ?? "",
		entries: manager.getEntries().map(e => e.id),
		messages: manager.buildSessionContext().messages.map(seen),
	};
}

/** Answers the steps of standard input, each with what `program` makes of it, until it ends. */
export async function run(program) {
	for await (const line of createInterface({ input: process.stdin })) {
		const step = JSON.parse(line);
		if (!(step.do in program)) throw new Error(`no such step: ${step.do}`);
		const answer = (await program[step.do](step)) ?? null;
		// Synchronously: the process must not end before a stream is drained.
		const out = Buffer.from(`${JSON.stringify(answer)}\n`);
		for (let at = 0; at < out.length; ) {
			try {
				at += writeSync(1, out, at);
			} catch (e) {
				if (e.code !== "EAGAIN") throw e; // the pipe is full for now
			}
		}
	}
	process.exit(0); // whatever timers the program has left
}
