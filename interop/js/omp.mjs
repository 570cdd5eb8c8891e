// oh-my-pi 18, run with bun.
import { ArtifactManager } from "@oh-my-pi/pi-coding-agent/session/artifacts";
import { SessionManager } from "@oh-my-pi/pi-coding-agent/session/session-manager";
import { run, view } from "./steps.mjs";

let manager;
const now = () => view(manager, manager.getSessionName());
const listed = s => ({ id: s.id, path: s.path, cwd: s.cwd, title: s.title ?? "", first: s.firstMessage });

await run({
	create({ cwd, dir }) {
		manager = SessionManager.create(cwd, dir);
		return now();
	},
	async open({ path }) {
		manager = await SessionManager.open(path, undefined, undefined, { suppressBreadcrumb: true });
		return now();
	},
	append({ message }) {
		manager.appendMessage(message);
		return now();
	},
	compact({ summary, keep }) {
		manager.appendCompaction(summary, undefined, keep, 1000);
		return now();
	},
	branch({ id }) {
		manager.branch(id);
		return now();
	},
	async rename({ title }) {
		await manager.setSessionName(title, "user");
		return now();
	},
	async rewrite() {
		await manager.rewriteEntries();
		return now();
	},
	async spill({ dir, text }) {
		return await new ArtifactManager(dir).save(text, "bash");
	},
	async close() {
		const last = now();
		await manager.flush();
		await manager.close();
		return last;
	},
	async list({ cwd, dir }) {
		return (cwd ? await SessionManager.list(cwd, dir) : await SessionManager.listAll()).map(listed);
	},
	async recent({ cwd, dir }) {
		const recent = await SessionManager.continueRecent(cwd, dir);
		return recent.getSessionId();
	},
});
