// Quotas: what groups with a label may hold together, and how much of it they hold.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link } from "../core/router.js";
import { cores, mib, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { fieldChanges } from "../parts/actions.js";
import { confirm } from "../parts/dialog.js";
import { changed, reloadOn } from "../parts/follow.js";
import { askForm } from "../parts/form.js";
import { labels, pairs, put, records } from "../parts/records.js";
import { age, attempt, bar, button, card, empty, facts, field, Resource, say } from "../parts/ui.js";

const pathOf = (name) => api.url`/api/v1/quotas/${name}`;
/** kinds is what is counted, and how it is written. @type {[string, (n: number) => string][]} */
const kinds = [["instances", number], ["memoryMb", mib], ["cpu", cores]];
const pick = (q) => ({ selector: q.selector, limit: q.limit, reserved: q.reserved });

/** Quotas is the tab of quotas. */
export class Quotas {
	constructor() {
		this.list = new Resource(() => api.all("/api/v1/quotas"));
		const own = changed("quota");
		this.end = reloadOn((e) => own(e) || e.type === "INSTANCE_STATE_CHANGED" || e.type === "INSTANCE_REMOVED" || e.type.startsWith("GROUP_"), () => this.list.reload());
	}

	removed() {
		this.end();
	}

	view() {
		const make = () => button({ label: t("quotas.new"), icon: "plus", kind: "primary", needs: "quotas.manage", onclick: () => this.edit(null) });
		return h("div", { class: "page" },
			h("div", { class: "row apart" }, h("p", { class: "muted" }, t("quotas.about")), this.list.data?.length ? make() : null),
			this.list.show((all) => records(all, { words: (q) => q.name + " " + pairs(q.selector), draw: (q) => this.quota(q), none: empty(t("quotas.none"), t("quotas.none.text"), make()) })));
	}

	quota(q) {
		const groups = [...live.groups.values()].filter((g) => Object.entries(q.selector ?? {}).every(([k, v]) => g.labels?.[k] === v)).map((g) => g.name).sort();
		return card(visible(q.name), { key: q.name, actions: h("span", { class: "tag mono" }, pairs(q.selector)) },
			q.message ? h("p", { class: "notice warn" }, visible(q.message)) : null,
			kinds.map(([k, show]) => this.meter(k, show, q)),
			facts(
				[t("quotas.groups"), groups.length ? [groups.slice(0, 5).map((g, i) => [i ? ", " : "", h("a", { href: link(["groups", g]) }, visible(g))]), groups.length > 5 ? " …" : ""] : t("quotas.groups.none")],
				[t("users.changed"), [visible(q.updatedBy), " ", age(q.updatedAt)]]),
			h("div", { class: "row" },
				button({ label: t("action.edit"), needs: "quotas.manage", onclick: () => this.edit(q) }),
				h("a", { class: "button", href: link(["audit"], { kind: "quota", name: q.name }) }, t("users.audit")),
				button({ label: t("action.delete"), kind: "danger", needs: "quotas.manage", onclick: () => this.remove(q) })));
	}

	meter(k, show, q) {
		const held = q.held?.[k] ?? 0, limit = q.limit?.[k] ?? 0, reserved = q.reserved?.[k] ?? 0;
		if (!limit && !reserved) return null;
		const text = limit ? t("quotas.of", { held: show(held), limit: show(limit) }) : t("quotas.noLimit", { held: show(held) });
		return h("div", { class: "page tight", key: k },
			h("div", { class: "row apart" }, h("span", null, t("quotas." + k)), h("span", { class: "small" }, text, reserved ? h("span", { class: "muted" }, " · ", t("quotas.reserved.of", { reserved: show(reserved) })) : null)),
			limit ? bar(held / limit, t("quotas." + k) + ": " + text) : null);
	}

	async edit(quota) {
		const before = quota ? await attempt(() => api.get(pathOf(quota.name))) : { name: "", selector: {}, limit: {}, reserved: {} };
		if (!before) return undefined;
		const text = (n) => (n ? String(n) : "");
		const f = { name: before.name, selector: Object.entries(before.selector).map(([k, v]) => k + "=" + v).join(", ") };
		for (const [k] of kinds) for (const part of ["limit", "reserved"]) f[part + k] = text(before[part]?.[k]);
		let etag = before.$etag;
		const amounts = (part) => Object.fromEntries(kinds.map(([k]) => [k, Number(f[part + k]) || 0]));
		const body = () => ({ selector: labels(f.selector), limit: amounts("limit"), reserved: amounts("reserved") });
		/** @type {(dryRun: boolean) => Promise<any>} */
		const send = async (dryRun) => put(pathOf(f.name.trim()), body(), { create: !quota, ifMatch: etag, dryRun });
		return askForm({ title: quota ? t("quotas.edit", { name: visible(quota.name) }) : t("quotas.new"), label: t("action.save"), preview: () => send(true), show: (x) => h("div", { class: "page" }, x.message ? h("p", { class: "notice warn" }, visible(x.message)) : null, fieldChanges(flat(x.diff), x.action === "create")), mine: body, theirs: quota ? () => api.get(pathOf(quota.name)) : undefined, keepMine: (theirs) => { etag = theirs.$etag; },
			fields: () => h("div", { class: "form" },
				quota ? null : field({ label: t("users.name"), name: "quota-name", value: f.name, required: true, autofocus: true, oninput: (v) => { f.name = v; } }),
				field({ label: t("quotas.selector"), name: "quota-selector", value: f.selector, required: true, placeholder: "team=red", hint: t("quotas.selector.hint"), oninput: (v) => { f.selector = v; } }),
				["limit", "reserved"].map((part) => h("fieldset", { class: "full page tight", key: part }, h("legend", null, t("quotas." + part)), h("p", { class: "muted small" }, t("quotas." + part + ".hint")),
					h("div", { class: "form" }, kinds.map(([k]) => field({ label: t("quotas.input." + k), name: "quota-" + part + "-" + k, type: "number", min: 0, value: f[part + k], oninput: (v) => { f[part + k] = v; } })))))),
			act: async () => {
				const next = await send(false);
				this.list.reload();
				say(t("quotas.saved"), quota ? { undo: () => attempt(async () => { await put(pathOf(before.name), pick(before), { create: false, ifMatch: next.$etag }); this.list.reload(); }) } : {});
			} });
	}

	remove(q) {
		return confirm({ title: t("quotas.delete", { name: visible(q.name) }), text: h("p", null, t("quotas.delete.text")), label: t("action.delete"), danger: true, preview: () => api.del(pathOf(q.name), { dryRun: true }), act: async () => {
			await api.del(pathOf(q.name));
			this.list.reload();
			say(t("quotas.deleted"), { undo: () => attempt(async () => { await put(pathOf(q.name), pick(q), { create: true }); this.list.reload(); }) });
		} });
	}
}

/** flat writes a change of amounts as changes of each amount. */
function flat(diff) {
	return diff.flatMap((d) => (d.field === "selector" ? [{ ...d, from: d.from && pairs(d.from), to: pairs(d.to) }] : kinds.map(([k]) => ({ field: d.field + "." + k, from: d.from?.[k], to: d.to?.[k] })).filter((x) => (x.from || 0) !== (x.to || 0))));
}
