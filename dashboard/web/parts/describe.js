// Events and audit entries as sentences with links.
import { h } from "../core/dom.js";
import * as live from "../core/live.js";
import { visible } from "../core/format.js";
import { link } from "../core/router.js";
import { t } from "../core/text.js";

const object = (kind, name, shown = name) => h("a", { href: link([kind, name]) }, visible(shown));

/** eventTone says how good an event is. */
export function eventTone(e) {
	if (/CRASH|DISCONNECTED|ROLLED_BACK|STALE/.test(e.type) && e.type !== "PLAYER_DISCONNECTED") return "bad";
	if (e.type === "INSTANCE_STATE_CHANGED") return e.newState === "RUNNING" ? "good" : e.newState === "CRASHED" ? "bad" : e.newState === "STOPPED" ? "idle" : "busy";
	if (/DRAIN|CORDON|MAINTENANCE|CRASH_LOOP/.test(e.type)) return "warn";
	return "busy";
}

/** eventSubject returns what an event is about: the kind of page and the name. */
export function eventSubject(e) {
	if (e.instanceId) return ["instances", e.uid ?? e.instanceId, e.instanceId];
	if (e.nodeId) return ["nodes", e.nodeId, e.nodeId];
	const group = e.groupName ?? e.group;
	if (group) return ["groups", group, group];
	if (e.templateName) return ["templates", e.templateName, e.templateName];
	return null;
}

/** describeEvent draws an event as a sentence. */
export function describeEvent(e) {
	const subject = eventSubject(e);
	const who = subject ? h("a", { href: link([subject[0], subject[1]]) }, visible(subject[2])) : null;
	if (e.type === "INSTANCE_STATE_CHANGED") return h("span", null, who, " ", t("event.state", { state: t("state." + (e.newState ?? "STOPPED")) }), e.message ? h("span", { class: "muted" }, " · " + visible(e.message)) : null);
	if (e.type === "RESOURCE_CHANGED") return h("span", null, t("event.resource", { kind: e.kind, name: visible(e.name), action: e.action }));
	if (e.type.startsWith("PLAYER_")) return h("span", null, visible(e.name), " ", t("event." + e.type), " ", who);
	const text = t(e.type === "NODE_CORDON_CHANGED" ? (e.cordoned ? "event.cordoned" : "event.uncordoned") : "event." + e.type);
	const rest = e.causeSummary ?? e.message ?? e.reason;
	return h("span", null, who, who ? " " : "", text === "event." + e.type ? e.type : text, typeof rest === "string" && rest ? h("span", { class: "muted" }, " · " + visible(rest)) : null);
}

/** causeOf says in a few words why an instance crashed. */
export function causeOf(c) {
	if (c.causeSummary) return visible(c.causeSummary);
	if (c.signal) return t("crash.signal", { signal: visible(c.signal) });
	return typeof c.exitCode === "number" ? t("crash.code", { code: c.exitCode }) : visible(c.classification);
}

const kinds = { group: "groups", instance: "instances", node: "nodes", template: "templates" };

/** auditedName returns the name of an entry's object. Entries have the ids of instances; the name of one that is gone is not known. */
export const auditedName = (a) => (a.resourceType === "instance" ? (live.instances.get(a.resourceId)?.id ?? a.resourceId) : a.resourceId);

/** describeAudit draws an audit entry as a sentence. */
export function describeAudit(a) {
	return h("span", null, h("strong", null, visible(a.username || t("audit.nobody"))), " ", h("span", { class: "mono small" }, a.action), " ", a.resourceId ? (kinds[a.resourceType] ? object(kinds[a.resourceType], a.resourceId, auditedName(a)) : visible(a.resourceId)) : null, a.details ? h("span", { class: "muted" }, " · " + visible(a.details)) : null, a.result === "FAILED" ? h("span", { class: "badge bad" }, t("audit.failed")) : null);
}
