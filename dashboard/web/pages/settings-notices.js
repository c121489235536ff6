// Notices: events that are sent to an address outside.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link } from "../core/router.js";
import { number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { fieldChanges } from "../parts/actions.js";
import { confirm } from "../parts/dialog.js";
import { changed, reloadOn } from "../parts/follow.js";
import { askForm, groupBoxes, list, objectDiff } from "../parts/form.js";
import { records } from "../parts/records.js";
import { age, attempt, button, card, empty, facts, field, Resource, say } from "../parts/ui.js";

const pathOf = (name) => api.url`/api/v1/notices/${name}`;
const names = ["description", "format", "url", "events", "groups", "minSeverity", "enabled"];
/** pick returns what may be sent of a notice. @returns {any} */
const pick = (n) => Object.fromEntries(names.map((k) => [k, n[k]]));

/** Notices is the tab of notices. */
export class Notices {
	constructor() {
		this.list = new Resource(() => api.all("/api/v1/notices"));
		this.end = reloadOn(changed("notice"), () => this.list.reload());
	}

	removed() {
		this.end();
	}

	view() {
		const make = () => button({ label: t("notices.new"), icon: "plus", kind: "primary", onclick: () => this.edit(null) });
		return h("div", { class: "page" },
			h("div", { class: "row apart" }, h("p", { class: "muted" }, t("notices.about")), this.list.data?.length ? h("span", { class: "row" }, button({ label: t("action.reload"), onclick: () => this.list.reload() }), make()) : null),
			this.list.show((all) => records(all, { words: (n) => [n.name, n.description, n.url, ...n.events, ...n.groups].join(" "), draw: (n) => this.notice(n), none: empty(t("notices.none"), t("notices.none.text"), make()) })));
	}

	notice(n) {
		const d = n.delivery;
		return card(visible(n.name), { key: n.name, actions: h("span", { class: "row" }, h("span", { class: "tag" }, t("notices.format." + n.format)), !n.enabled ? h("span", { class: "badge idle" }, t("users.no")) : d.failures ? h("span", { class: "badge bad" }, t("notices.failing")) : h("span", { class: "badge good" }, t("users.yes"))) },
			n.description ? h("p", null, visible(n.description)) : null,
			d.failures ? h("p", { class: "notice bad" }, visible(d.lastError ?? ""), d.failingSince ? h("span", { class: "block small" }, t("notices.failingSince"), " ", age(d.failingSince)) : null) : null,
			facts(
				[t("notices.url"), h("span", { class: "mono small" }, visible(n.url))],
				[t("notices.events"), h("span", { class: "mono small" }, n.events.map(visible).join(", "))],
				[t("nav.groups"), n.groups.length ? n.groups.map(visible).join(", ") : t("filter.all")],
				[t("notices.severity"), t("notices.severity." + n.minSeverity)],
				[t("notices.signed"), n.signed ? t("notices.signed.yes") : t("notices.signed.no")],
				[t("notices.delivered"), number(d.delivered)],
				d.waiting ? [t("notices.waiting"), number(d.waiting)] : null,
				d.failed + d.dropped ? [t("notices.lost"), number(d.failed + d.dropped)] : null,
				[t("notices.last"), d.lastAttemptAt ? age(d.lastAttemptAt) : t("tokens.unused")]),
			h("div", { class: "row" },
				button({ label: t("notices.test"), onclick: () => this.test(n) }),
				button({ label: t("action.edit"), onclick: () => this.edit(n) }),
				button({ label: n.enabled ? t("notices.off") : t("notices.on"), onclick: () => this.enable(n) }),
				h("a", { class: "button", href: link(["audit"], { kind: "notice", name: n.name }) }, t("users.audit")),
				button({ label: t("action.delete"), kind: "danger", onclick: () => this.remove(n) })));
	}

	enable(n) {
		const set = (enabled) => api.patch(pathOf(n.name), { enabled }).then(() => this.list.reload());
		return attempt(() => set(!n.enabled), n.enabled ? t("notices.isOff") : t("notices.isOn"), { undo: () => attempt(() => set(n.enabled)) });
	}

	test(n) {
		const path = pathOf(n.name) + "/test";
		return confirm({ title: t("notices.test.title", { name: visible(n.name) }), text: h("p", null, t("notices.test.text")), label: t("notices.test.do"),
			preview: () => api.post(path, undefined, { dryRun: true }),
			show: (x) => h("pre", { class: "text", tabindex: "0", role: "region", "aria-label": t("notices.test.body") }, visible(JSON.stringify(x.body, null, 2))),
			act: async () => {
				const x = await api.post(path);
				if (!x.delivered) throw new api.Failure(424, "", visible(x.error ?? t("notices.test.status", { status: x.statusCode })));
				say(t("notices.test.done"));
			} });
	}

	async edit(notice) {
		const before = notice ? await attempt(() => api.get(pathOf(notice.name))) : { name: "", description: "", format: "discord", url: "", events: ["*"], groups: [], minSeverity: "warning", enabled: true, signed: false };
		if (!before) return undefined;
		const f = { ...before, events: before.events.join(", "), groups: new Set(before.groups), secret: "", unsigned: false };
		let etag = before.$etag;
		const body = () => ({ ...pick(f), events: list(f.events), groups: [...f.groups] });
		const secret = () => (f.format !== "json" || f.unsigned ? (before.signed ? { secret: "" } : {}) : f.secret ? { secret: f.secret } : {});
		const change = () => ({ ...Object.fromEntries(objectDiff(pick(before), body()).map((d) => [d.field, d.to])), ...secret() });
		/** @type {(dryRun: boolean) => Promise<any>} */
		const send = (dryRun) => (notice ? api.patch(pathOf(notice.name), change(), { ifMatch: etag, dryRun }) : api.post("/api/v1/notices", { name: f.name.trim(), ...body(), ...secret() }, { dryRun }));
		return askForm({ title: notice ? t("notices.edit", { name: visible(notice.name) }) : t("notices.new"), label: t("action.save"), wide: true, preview: () => send(true), show: (x) => fieldChanges(x.diff, x.action === "create"), mine: body, theirs: notice ? () => api.get(pathOf(notice.name)) : undefined, keepMine: (theirs) => { etag = theirs.$etag; },
			fields: () => h("div", { class: "form" },
				notice ? null : field({ label: t("users.name"), name: "notice-name", value: f.name, required: true, autofocus: true, oninput: (v) => { f.name = v; } }),
				field({ label: t("templates.description"), name: "notice-description", value: f.description, oninput: (v) => { f.description = v; } }),
				field({ label: t("notices.format"), name: "notice-format", value: f.format, options: ["discord", "slack", "json"].map((x) => [x, t("notices.format." + x)]), oninput: (v) => { f.format = v; } }),
				h("div", { class: "full" }, field({ label: t("notices.url"), name: "notice-url", value: f.url, required: true, placeholder: "https://", hint: notice ? t("notices.url.kept") : t("notices.url.hint"), oninput: (v) => { f.url = v; } })),
				field({ label: t("notices.events"), name: "notice-events", value: f.events, required: true, hint: t("notices.events.hint"), oninput: (v) => { f.events = v; } }),
				field({ label: t("notices.severity"), name: "notice-severity", value: f.minSeverity, options: ["info", "warning", "critical"].map((x) => [x, t("notices.severity." + x)]), hint: t("notices.severity.hint"), oninput: (v) => { f.minSeverity = v; } }),
				f.format === "json" ? field({ label: t("notices.secret"), name: "notice-secret", type: "password", autocomplete: "off", minlength: 16, maxlength: 256, value: f.secret, disabled: f.unsigned, hint: before.signed ? t("notices.secret.kept") : t("notices.secret.hint"), oninput: (v) => { f.secret = v; } }) : null,
				f.format === "json" && before.signed ? field({ label: t("notices.secret.remove"), name: "notice-unsigned", type: "checkbox", value: f.unsigned, oninput: (v) => { f.unsigned = v; } }) : null,
				h("fieldset", { class: "full" }, h("legend", null, t("nav.groups")), h("p", { class: "muted small" }, t("notices.groups.hint")), groupBoxes(f.groups)),
				field({ label: t("notices.enabled"), name: "notice-enabled", type: "checkbox", value: f.enabled, oninput: (v) => { f.enabled = v; } }),
			),
			act: async () => {
				const sent = notice ? change() : {};
				const next = await send(false);
				this.list.reload();
				// The server shows neither an address nor a secret that was replaced.
				const kept = notice && !("url" in sent) && !("secret" in sent);
				say(t("notices.saved"), kept ? { undo: () => attempt(async () => { await api.patch(pathOf(notice.name), Object.fromEntries(Object.keys(sent).map((k) => [k, before[k]])), { ifMatch: next.$etag }); this.list.reload(); }) } : {});
			} });
	}

	remove(n) {
		return confirm({ title: t("notices.delete", { name: visible(n.name) }), text: h("p", null, t("notices.delete.text")), label: t("action.delete"), danger: true, preview: () => api.del(pathOf(n.name), { dryRun: true }), show: () => (n.delivery.waiting ? facts([t("notices.waiting"), number(n.delivery.waiting)]) : h("p", { class: "muted" }, t("notices.delete.none"))), act: async () => {
			await api.del(pathOf(n.name));
			this.list.reload();
			say(t("notices.deleted"));
		} });
	}
}
