// The backups of a static instance: archives of its directory, on its node.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link } from "../core/router.js";
import { allowed } from "../core/session.js";
import { bytes, number, time, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "./dialog.js";
import { reloadOn } from "./follow.js";
import { askForm } from "./form.js";
import { copy } from "./transfer.js";
import { age, bar, button, empty, facts, field, Resource, say } from "./ui.js";

const tones = { RUNNING: "busy", RESTORING: "busy", COMPLETE: "good", FAILED: "bad" };
/** few is how many backups are drawn until the reader asks for all. */
const few = 20;
/** waitSeconds is how long the server waits for the end of a backup before it answers. */
const waitSeconds = 8;
/** pause is how long a request that failed waits to be sent again, in milliseconds. */
const pause = 5000;

/** works reports whether a backup is being made or restored. */
const works = (b) => b.state === "RUNNING" || b.state === "RESTORING";

/** Backups shows the backups of an instance. attrs: instance. */
export class Backups {
	constructor({ instance }) {
		this.path = api.url`/api/v1/services/${instance.uid}/backups`;
		/** totals has the number of files of each complete backup, which the server does not send during a restore. */
		this.totals = new Map();
		this.all = false;
		this.following = false;
		this.closed = new AbortController();
		this.list = new Resource(async () => {
			const list = (await api.get(this.path)).backups;
			for (const b of list) if (b.state === "COMPLETE") this.totals.set(b.id, b.files);
			return list;
		});
		this.list.reading.then(() => this.follow());
		// No event names a backup. Schedules make some during their runs.
		this.end = reloadOn((e) => e.type.startsWith("SCHEDULE_RUN_") || e.uid === instance.uid && e.type !== "INSTANCE_METRICS", () => this.reload());
	}

	removed() {
		this.end();
		this.closed.abort();
	}

	reload() {
		return this.list.reload().then(() => this.follow());
	}

	/** working returns the backup that is being made or restored. */
	working() {
		return this.list.data?.find(works);
	}

	/**
	 * follow waits for the end of the backup in progress, with one request at a time. After each answer it reads the list again.
	 * @param {any} [begun] is what this page has just begun. It may have ended already.
	 */
	async follow(begun) {
		if (begun) this.list.reload();
		if (this.following) return;
		this.following = true;
		for (let b = begun ?? this.working(); b && !this.closed.signal.aborted; b = this.working()) {
			try {
				const now = await api.get(this.path + "/" + encodeURIComponent(b.id), { waitSeconds }, { signal: this.closed.signal });
				if (!works(now)) announce(b, now);
			} catch (err) {
				if (this.closed.signal.aborted || ![0, 404, 429].includes(err.status) && err.status < 500) break;
				if (err.status !== 404) await new Promise((resolve) => setTimeout(resolve, pause));
			}
			await this.list.reload();
		}
		this.following = false;
	}

	view({ instance: i }) {
		return this.list.show((list) => {
			const working = this.working();
			const make = () => button({ label: t("backups.new"), icon: "plus", kind: "primary", needs: "backups.manage", group: i.group, disabled: Boolean(working), title: working ? t("backups.busy") : undefined, onclick: () => this.make(i) });
			const schedules = allowed("groups.view") ? h("a", { class: "button", href: link(["schedules"]) }, t("nav.schedules")) : null;
			if (list.length === 0) return h("div", { class: "card" }, empty(t("backups.none"), t("backups.none.text"), make(), schedules));
			const stopped = live.hasEnded(i), shown = this.all ? list : list.slice(0, few);
			return h("div", { class: "page" },
				h("div", { class: "row apart" }, h("p", { class: "muted" }, t("backups.about", { node: visible(i.node || "–") })), h("div", { class: "row" }, schedules, make())),
				!stopped && live.allowedIn("backups.restore", i.group) ? h("p", { class: "notice info" }, t("backups.stopFirst")) : null,
				h("div", { class: "page" }, shown.map((b) => this.backup(i, b, working ? t("backups.busy") : stopped ? "" : t("backups.stopFirst")))),
				shown.length < list.length ? h("div", { class: "row" }, button({ label: t("backups.all", { count: list.length }), onclick: () => { this.all = true; } })) : null);
		});
	}

	/** backup draws one of them. refusal is why it cannot be restored now. */
	backup(i, b, refusal) {
		const total = this.totals.get(b.id);
		return h("article", { class: "card", key: b.id },
			h("header", { class: "card-head" },
				h("div", { class: "row" }, h("h2", null, time(b.begunAt)), h("span", { class: "badge " + (tones[b.state] ?? "idle") }, t("backups.state." + b.state)), h("span", { class: "muted small" }, age(b.begunAt))),
				h("div", { class: "row" },
					b.state === "FAILED" ? null : button({ label: t("backups.restore"), kind: "small", needs: "backups.restore", group: i.group, disabled: refusal !== "", title: refusal || undefined, onclick: () => this.restore(b) }),
					button({ label: t(b.state === "RUNNING" ? "action.cancel" : "action.delete"), kind: "danger small", needs: "backups.manage", group: i.group, disabled: b.state === "RESTORING", title: b.state === "RESTORING" ? t("backups.busy") : undefined, onclick: () => this.remove(b) }))),
			works(b) ? h("p", { role: "status" }, b.files === 0 ? t("backups.waits") : t(b.state === "RUNNING" ? "backups.made" : "backups.unpacked", { files: number(b.files), size: bytes(b.sizeBytes) })) : null,
			b.state === "RESTORING" && total ? bar(b.files / total, t("backups.progress", { done: number(b.files), all: number(total) }), true) : null,
			b.message ? h("p", { class: "notice bad" }, visible(b.message)) : null,
			facts(
				[t("backups.by"), requester(b.by)],
				b.state === "COMPLETE" ? [t("backups.files"), number(b.files)] : null,
				b.state === "COMPLETE" ? [t("backups.size"), bytes(b.sizeBytes)] : null,
				b.archiveBytes ? [t("backups.archive"), bytes(b.archiveBytes)] : null,
				b.state === "COMPLETE" ? [t("backups.changed"), b.changedFiles ? h("span", { title: t("backups.changed.hint") }, number(b.changedFiles)) : number(0)] : null,
				b.state === "COMPLETE" ? [t("backups.restored"), b.restoredAt ? age(b.restoredAt) : t("backups.restored.never")] : null,
			),
			b.path ? h("div", { class: "row small" }, h("code", null, visible(b.path)), button({ label: t("backups.copy"), icon: "copy", hideLabel: true, kind: "quiet small", onclick: () => copy(b.path) })) : null);
	}

	make(i) {
		const f = { before: "", until: "", after: "" };
		return askForm({ title: t("backups.new.title", { name: visible(i.id) }), label: t("backups.new"),
			fields: () => h("div", { class: "page" },
				h("p", null, t("backups.new.text")),
				live.hasEnded(i) ? null : live.allowedIn("instances.command", i.group) ? pauseFields(f) : h("p", { class: "muted" }, t("backups.new.lines"))),
			act: async () => {
				const now = await api.post(this.path, live.hasEnded(i) ? {} : pauseLines(f));
				say(t("backups.new.done"));
				this.follow(now);
			} });
	}

	restore(b) {
		const path = this.path + "/" + encodeURIComponent(b.id) + "/restore";
		return confirm({
			title: t("backups.restore.title"),
			text: h("div", { class: "page tight" }, h("p", null, t("backups.restore.text")), h("p", null, t("backups.restore.kept"))),
			label: t("backups.restore"),
			danger: true,
			preview: () => api.post(path, undefined, { dryRun: true }),
			show: (x) => facts(begun(x), [t("backups.by"), requester(x.by)], [t("backups.files"), number(x.files)], [t("backups.size"), bytes(x.sizeBytes)], x.changedFiles ? [t("backups.changed"), number(x.changedFiles)] : null),
			act: async () => {
				const now = await api.post(path);
				say(t("backups.restore.done"));
				this.follow(now);
			},
		});
	}

	remove(b) {
		const path = this.path + "/" + encodeURIComponent(b.id);
		const running = b.state === "RUNNING";
		return confirm({
			title: t(running ? "backups.cancel.title" : "backups.delete.title"),
			text: h("p", null, t(running ? "backups.cancel.text" : "backups.delete.text")),
			label: t(running ? "backups.cancel" : "action.delete"),
			danger: true,
			preview: () => api.del(path, { dryRun: true }),
			show: (x) => facts(begun(x), [t("backups.by"), requester(x.by)], [t("backups.files"), number(x.files)], [t("backups.archive"), bytes(x.archiveBytes)]),
			act: async () => {
				await api.del(path);
				if (!running) say(t("backups.deleted"));
				this.reload();
			},
		});
	}
}

const begun = (b) => [t("backups.begun"), [time(b.begunAt), " (", age(b.begunAt), ")"]];

/** announce says how a backup or a restore ended. */
function announce(before, b) {
	if (b.state === "FAILED" || b.message) say(visible(b.message), { tone: "bad" });
	else say(t(before.state === "RUNNING" ? "backups.complete" : "backups.restore.complete"));
}

/** requester names the user or the schedule that asked for a backup. User names have no space. */
function requester(by) {
	const name = by.startsWith("schedule ") ? by.slice("schedule ".length) : "";
	return name && allowed("groups.view") ? h("a", { href: link(["schedules"], { schedule: name }) }, visible(by)) : visible(by) || "–";
}

/**
 * pauseFields draws the console lines that make a server stop changing its files during a backup.
 * @param {{before: string, until: string, after: string}} f
 */
export function pauseFields(f) {
	return h("fieldset", { class: "full page" }, h("legend", null, t("backups.lines")),
		h("p", { class: "muted small" }, t("backups.lines.text")),
		field({ label: t("backups.before"), name: "backup-before", rows: 2, class: "mono", spellcheck: "false", placeholder: "save-off\nsave-all flush", value: f.before, hint: t("backups.before.hint"), oninput: (v) => { f.before = v; } }),
		field({ label: t("backups.until"), name: "backup-until", class: "mono", maxlength: 200, placeholder: "Saved the game", value: f.until, hint: t("backups.until.hint"), oninput: (v) => { f.until = v; } }),
		field({ label: t("backups.after"), name: "backup-after", rows: 2, class: "mono", spellcheck: "false", placeholder: "save-on", value: f.after, hint: t("backups.after.hint"), oninput: (v) => { f.after = v; } }));
}

/**
 * pauseLines returns the settings that pauseFields edits.
 * @param {{before: string, until: string, after: string}} f
 */
export function pauseLines(f) {
	const lines = (text) => text.split("\n").map((l) => l.trim()).filter(Boolean);
	return { before: lines(f.before), until: f.until, after: lines(f.after) };
}
