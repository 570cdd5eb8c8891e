// pi 0.73, run with node. It has no close: every append is a synchronous write.
import { SessionManager } from "@mariozechner/pi-coding-agent";
import { run, view } from "./steps.mjs";

let manager;
const now = () => view(manager, manager.getSessionName());
const listed = s => ({ id: s.id, path: s.path, cwd: s.cwd, title: s.name ?? "", first: s.firstMessage });

await run({
	create({ cwd, dir }) {
		manager = SessionManager.create(cwd, dir);
		return now();
	},
	open({ path }) {
		manager = SessionManager.open(path);
		return now();
	},
	append({ message }) {
		manager.appendMessage(message);
		return now();
	},
	compact({ summary, keep }) {
		manager.appendCompaction(summary, keep, 1000);
		return now();
	},
	branch({ id }) {
		manager.branch(id);
		return now();
	},
	rename({ title }) {
		manager.appendSessionInfo(title);
		return now();
	},
	close: now,
	async list({ cwd, dir }) {
		return (cwd ? await SessionManager.list(cwd, dir) : await SessionManager.listAll()).map(listed);
	},
	recent({ cwd, dir }) {
		return SessionManager.continueRecent(cwd, dir).getSessionId();
	},
});
