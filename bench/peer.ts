// One operation of oh-my-pi, timed: peer.ts OPERATION DIR COUNT. bench/peer runs it.
import * as fs from "node:fs";
import * as path from "node:path";
import { SessionManager } from "@oh-my-pi/pi-coding-agent/session/session-manager";
import { listSessions } from "@oh-my-pi/pi-coding-agent/session/session-listing";
import { FileSessionStorage } from "@oh-my-pi/pi-coding-agent/session/session-storage";

const [operation, dir, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const entries = 10_000;

// The messages of bench/session: 700 bytes as a line, a user's and an assistant's in turn.
const words = "the quick brown fox jumps over the lazy dog and reads the session file again ".repeat(8);
const usage = { input: 100, output: 20, cacheRead: 0, cacheWrite: 0, totalTokens: 120, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };
const message = (i: number): any => i % 2
	? { role: "assistant", content: [{ type: "text", text: `${i} ${words.slice(0, 250)}` }], api: "anthropic-messages", provider: "anthropic", model: "m", usage, stopReason: "stop", timestamp: 1_760_000_000_000 + i }
	: { role: "user", content: `${i} ${words.slice(0, 500)}`, timestamp: 1_760_000_000_000 + i };

const create = () => SessionManager.create(dir, dir);
const open = (file: string) => SessionManager.open(file, dir, undefined, { suppressBreadcrumb: true });

async function write(n: number): Promise<string> {
	const m = create();
	for (let i = 0; i < n; i++) m.appendMessage(message(i));
	await m.flush();
	await m.close();
	return m.getSessionFile()!;
}

// measure times what run does with what before made, and has after clean up.
async function measure<T, R>(name: string, before: () => T | Promise<T>, run: (t: T) => R | Promise<R>, after: (t: T, r: R) => unknown = () => {}, per = 1) {
	const took: number[] = [];
	for (let i = -1; i < count; i++) {
		const t = await before();
		const from = performance.now();
		const r = await run(t);
		const ms = performance.now() - from;
		await after(t, r);
		if (i >= 0) took.push((ms * 1e6) / per);
	}
	took.sort((a, b) => a - b);
	const show = (n: number) => n.toPrecision(6);
	console.log(`${`oh-my-pi/${name}`.padEnd(60)} ${show(took[Math.floor((count - 1) / 2)]).padStart(14)} ${"ns/op".padEnd(14)} (${show(took[0])} to ${show(took[count - 1])} of ${count})`);
}

const operations: Record<string, () => Promise<void>> = {
	async append() {
		const begun = () => {
			const m = create();
			m.appendMessage(message(0));
			m.appendMessage(message(1)); // the file is made with the first answer
			return m;
		};
		await measure("append", begun, async m => {
			for (let i = 0; i < entries; i++) m.appendMessage(message(i));
			await m.flush();
		}, async m => {
			await m.close();
			fs.rmSync(m.getSessionFile()!);
		}, entries);
	},
	async open() {
		const file = await write(entries);
		await measure("open-10000", () => {}, async () => {
			const m = await open(file);
			if (m.buildSessionContext().messages.length !== entries) throw new Error("not every entry is there");
			return m;
		}, (_, m) => m.close());
	},
	async fork() {
		const file = await write(entries);
		await measure("fork-10000", () => open(file), m => m.fork(), async (m, forked) => {
			await m.close();
			if (!forked) throw new Error("it was not forked");
			fs.rmSync(forked.newSessionFile);
		});
	},
	async rewrite() {
		const file = await write(entries);
		await measure("rewrite-10000", () => open(file), m => m.rewriteEntries(), m => m.close());
	},
	async list() {
		const seed = await write(90);
		const id = path.basename(seed, ".jsonl").replace(/^.*_/, "");
		const text = fs.readFileSync(seed, "utf8");
		fs.rmSync(seed);
		const names = Array.from({ length: 1000 }, () => {
			const other = Bun.randomUUIDv7();
			const name = path.join(dir, path.basename(seed).replace(id, other));
			fs.writeFileSync(name, text.replaceAll(id, other));
			return name;
		});
		const list = async () => {
			const n = (await listSessions(dir, new FileSessionStorage())).length;
			if (n !== names.length) throw new Error(`${n} sessions were listed`);
		};
		// Other times of modification: what it remembers of the files does not hold.
		let at = Date.now() / 1000;
		await measure("list-1000/cold", () => names.forEach(name => fs.utimesSync(name, ++at, at)), list);
		await measure("list-1000/cached", () => {}, list);
	},
};

await operations[operation]();
process.exit(0); // it may hold timers
