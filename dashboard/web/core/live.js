// The fleet as the gateway knows it: lists that are read once, and then follow the event stream.
//
// The stream is opened first and the lists are read after it, so no change between the two is
// lost. A stream that broke resumes after its last event. If the gateway no longer has the events
// in between, it says so, and the lists are read again.
import * as api from "./api.js";
import { redraw } from "./dom.js";
import * as session from "./session.js";
import { Stream } from "./stream.js";
import { checkVersion } from "./version.js";

/** @typedef {"connecting" | "live" | "waiting" | "off"} StreamState */

/**
 * allowedIn reports whether the user has a permission in a group. If the user does not see the group,
 * its labels are unknown, and any binding with the permission counts.
 * @param {string} permission
 * @param {string} group
 */
export function allowedIn(permission, group) {
	const g = groups.get(group);
	return session.allowed(permission, g ? g.labels ?? {} : undefined);
}

/** state is what the pages show about the connection. */
export const state = {
	/** @type {StreamState} */
	stream: "off",
	/** why is the reason of the last failure. */
	why: "",
	/** retryAt is when the next attempt begins, in milliseconds of this clock. */
	retryAt: 0,
	/** missedAt is when events were missed and the lists were read again. */
	missedAt: 0,
	/** loaded is set when the lists were read for the first time. */
	loaded: false,
	/** failure is why the lists could not be read. */
	failure: /** @type {any} */ (null),
};

/** @type {Map<string, any>} by uid */
export const instances = new Map();
/** @type {Map<string, any>} by id */
export const nodes = new Map();
/** @type {Map<string, any>} by name */
export const groups = new Map();
/** version counts changes of each list, so that derived lists know when they are stale. */
export const version = { instances: 0, nodes: 0, groups: 0 };

/** recent is the latest events, newest first. */
export const recent = /** @type {any[]} */ ([]);
const recentLimit = 1000;

/** @type {Stream | null} */
let stream = null;
/** buffered is the events that arrive while the lists are read. */
let buffered = /** @type {any[] | null} */ (null);
const subscribers = new Set();

/**
 * subscribe calls f with every event and returns a function that ends it.
 * @param {(event: any) => void} f
 */
export function subscribe(f) {
	subscribers.add(f);
	return () => subscribers.delete(f);
}

/** start follows the fleet until stop. */
export function start() {
	if (stream) return;
	stream = new Stream(
		{
			opened: () => {
				readAll();
				ticking();
			},
			event: (event) => {
				if (event.type === "RESYNC_REQUIRED") {
					state.missedAt = api.now();
					readAll();
					for (const f of subscribers) f(event);
				} else if (buffered) buffered.push(event);
				else take(event);
			},
			state: (now, why, retryAt) => {
				const before = state.stream;
				Object.assign(state, { stream: now, why: why ?? "", retryAt: retryAt ?? 0 });
				if (now === "waiting" && !session.current()) pause();
				if (now === "live") checkUser(); // a stream ends when the rights of its user change
				if (now === "live" && before !== "live") checkVersion(); // and when the gateway is replaced
				redraw();
			},
			refused: readWithoutStream,
		},
		session.user()?.username ?? "",
	);
	addEventListener("online", retryNow);
}

/** pause ends the stream and keeps what is known, for a login that ended. */
function pause() {
	stream?.close();
	stream = null;
	removeEventListener("online", retryNow);
}

/** stop forgets the fleet. */
export function stop() {
	pause();
	state.loaded = false;
	state.failure = null;
	state.stream = "off";
	for (const name of ["instances", "nodes", "groups"]) forget(name);
	recent.length = 0;
	dirty.clear();
	logins++;
	readWith = "";
}

/** logins counts the ends of logins. What was asked before one is not for the next user. */
let logins = 0;

function forget(name) {
	const list = { instances, nodes, groups }[name];
	if (list.size === 0) return;
	list.clear();
	version[name]++;
}

/** retryNow connects without waiting for the next attempt. */
export function retryNow() {
	stream?.retryNow();
}

/** readWithoutStream shows the lists to users who may not follow events. */
async function readWithoutStream(err) {
	state.stream = "off";
	state.why = err.message;
	ticking();
	checkUser();
	await readAll();
}

/** reload reads the lists again, after the reader asked for it. */
export function reload() {
	return readAll();
}

let reading = 0;
/** readWith is the rights with which the lists were read. */
let readWith = "";

async function readAll() {
	const mine = ++reading, login = logins;
	readWith = rights();
	buffered ??= [];
	state.failure = null;
	const read = (l) => (session.allowed(l.permission) ? replace(l) : forget(l.list));
	const failed = (await Promise.allSettled(Object.values(lists).map(read))).find((r) => r.status === "rejected");
	if (mine !== reading || login !== logins) return;
	state.failure = failed?.reason ?? null;
	state.loaded = true;
	const waiting = buffered ?? [];
	buffered = null;
	for (const event of waiting) take(event);
	redraw();
}

async function replace(l) {
	const login = logins, newer = beginRead();
	try {
		const list = await api.all(l.path);
		if (login !== logins) return;
		const seen = new Set(list.map((o) => o[l.id]));
		for (const k of l.map.keys()) if (!seen.has(k) && !newer.has(k)) l.map.delete(k);
		for (const o of list) if (!newer.has(o[l.id])) l.map.set(o[l.id], o);
		version[l.list]++;
	} finally {
		reads.delete(newer);
	}
}

/**
 * reads has, for each read that is under way, the ids of what events changed or removed since it began. Its answer may
 * be older. What changed is read again.
 */
const reads = /** @type {Set<Set<string>>} */ (new Set());

function beginRead() {
	const newer = /** @type {Set<string>} */ (new Set());
	reads.add(newer);
	return newer;
}

/** removeObject removes an object. A read that began before does not bring it back. */
function removeObject(name, id) {
	for (const newer of reads) newer.add(id);
	dirty.delete(name + " " + id);
	if (lists[name].map.delete(id)) version[lists[name].list]++;
}

// Events of an object say that it changed, and some say how. What an event says is shown at once.
// The rest is read, in batches, after a short wait in which more events may come.

/** @type {Map<string, {kind: string, name: string}>} */
const dirty = new Map();
let flushing = false;

function mark(kind, name) {
	if (!name) return;
	dirty.set(kind + " " + name, { kind, name });
	if (!flushing) {
		flushing = true;
		setTimeout(flush, 60);
	}
}

async function flush() {
	const batch = [...dirty.values()], login = logins;
	dirty.clear();
	const answers = await Promise.allSettled(Object.keys(lists).map((kind) => readChanged(kind, batch.filter((d) => d.kind === kind))));
	const failed = login === logins && answers.some((a) => a.status === "rejected");
	if (failed) for (const d of batch) dirty.set(d.kind + " " + d.name, d);
	redraw();
	// A fleet that changes all the time is read once a second at most. What cannot be read is tried again.
	setTimeout(() => (dirty.size ? flush() : (flushing = false)), failed ? 5000 : batch.length > few ? 1000 : 60);
}

/** few is how many objects are read one by one. More are read as a list. */
const few = 12;
const lists = {
	group: { map: groups, path: "/api/v1/groups", id: "name", list: "groups", permission: "groups.view" },
	node: { map: nodes, path: "/api/v1/nodes", id: "id", list: "nodes", permission: "nodes.view" },
	instance: { map: instances, path: "/api/v1/services", id: "uid", list: "instances", permission: "instances.view" },
};

async function readChanged(kind, batch) {
	const l = lists[kind];
	if (batch.length === 0 || !session.allowed(l.permission)) return;
	if (batch.length > few) return replace(l);
	const login = logins;
	await Promise.all(
		batch.map(async ({ name }) => {
			const newer = beginRead();
			try {
				const o = await api.get(l.path + "/" + encodeURIComponent(name));
				if (login !== logins || newer.has(o[l.id])) return;
				l.map.set(o[l.id], o);
				if (kind === "instance") dropSuperseded(o);
			} catch (err) {
				if (err.status !== 404 && err.status !== 403) throw err;
				l.map.delete(name);
			} finally {
				reads.delete(newer);
			}
			version[l.list]++;
		}),
	);
}

/** stateOf returns the state to show: an instance that sleeps has not stopped. */
export const stateOf = (i) => (i.state === "STOPPED" && i.reason === "SLEEPING" ? "SLEEPING" : i.state);

/** waits reports whether an instance has waited for a node for some seconds. */
export const waits = (i) => i.state === "SCHEDULED" && !i.node && api.now() - Date.parse(i.createdAt ?? "") > 5000;

/** hasEnded reports whether an instance has ended. One that sleeps has not. */
export const hasEnded = (i) => (i.state === "STOPPED" || i.state === "CRASHED") && i.reason !== "SLEEPING";

/**
 * dropSuperseded removes instances that ended and whose name a newer one has, as the gateway's list does.
 * @param {any} changed the instance that changed
 */
function dropSuperseded(changed) {
	const same = [...instances.values()].filter((i) => i.id === changed.id);
	if (same.some((i) => !hasEnded(i))) for (const i of same) if (hasEnded(i)) removeObject("instance", i.uid);
}

function take(event) {
	remember(event);
	apply(event);
	for (const f of subscribers) f(event);
	redraw();
}

const silent = new Set(["NODE_STATUS", "INSTANCE_METRICS", "GROUP_AGGREGATES_UPDATED", "NODE_CACHE_STATUS"]);

function remember(event) {
	if (silent.has(event.type)) return;
	recent.unshift({ ...event, seenAt: api.now(), timestamp: event.timestamp ?? new Date(api.now()).toISOString() });
	if (recent.length > recentLimit) recent.length = recentLimit;
}

function apply(e) {
	switch (e.type) {
		case "INSTANCE_STATE_CHANGED": {
			const i = instances.get(e.uid);
			for (const newer of reads) newer.add(e.uid);
			if (i) {
				Object.assign(i, { state: e.newState ?? i.state, reason: e.reason, message: e.message, node: e.nodeId ?? i.node });
				if (e.newState === "RUNNING" && !i.startedAt) i.startedAt = new Date(api.now()).toISOString();
			} else {
				instances.set(e.uid, { id: e.instanceId, uid: e.uid, group: e.group, node: e.nodeId, state: e.newState, reason: e.reason, message: e.message, ports: [], templates: [] });
			}
			version.instances++;
			mark("instance", e.uid);
			return dropSuperseded(instances.get(e.uid));
		}
		case "INSTANCE_CRASHED":
		case "INSTANCE_DRAINING":
		case "INSTANCE_WARM_CHANGED":
		case "INSTANCE_MOVE_STARTED":
		case "INSTANCE_MOVE_ENDED":
			return mark("instance", e.uid);
		case "INSTANCE_REMOVED":
			return removeObject("instance", e.uid);
		case "INSTANCE_METRICS": {
			const i = instances.get(e.uid);
			if (i && e.playerCount !== undefined && e.playerCount !== i.playerCount) version.instances++;
			if (i) for (const k of ["playerCount", "tps", "usedMemoryMb", "usedCpu"]) if (e[k] !== undefined) i[k] = e[k];
			return;
		}
		case "PLAYER_CONNECTED":
		case "PLAYER_DISCONNECTED":
		case "PLAYER_TRANSFER":
			for (const i of instances.values()) if (i.id === e.instanceId || i.id === e.toInstanceId || i.id === e.fromInstanceId) mark("instance", i.uid);
			return;
		case "NODE_STATUS": {
			const n = nodes.get(e.nodeId);
			if (!n) return mark("node", e.nodeId);
			Object.assign(n, { cpuUsage: e.cpuUsage, usedMemoryMb: e.usedMemoryMb, totalMemoryMb: e.totalMemoryMb, lastHeartbeat: e.lastHeartbeatAt });
			return;
		}
		case "NODE_CORDON_CHANGED": {
			const n = nodes.get(e.nodeId);
			if (n) n.cordoned = e.cordoned;
			version.nodes++;
			return mark("node", e.nodeId);
		}
		case "GROUP_DELETED":
			return removeObject("group", e.groupName);
		case "GROUP_AGGREGATES_UPDATED": {
			const g = groups.get(e.groupName);
			if (!g) return mark("group", e.groupName);
			Object.assign(g, { runningInstances: e.runningInstances, totalPlayers: e.totalPlayers });
			version.groups++;
			return;
		}
		case "RESOURCE_CHANGED":
			if (e.kind === "node") mark("node", e.name);
			if (e.kind === "role" || e.kind === "user" || e.kind === "binding") checkUser();
			return;
		case "MAINTENANCE_UPDATED":
			return;
	}
	if (e.type.startsWith("NODE_")) mark("node", e.nodeId);
	else if (e.type.startsWith("GROUP_") || e.type.startsWith("DEPLOYMENT_") || e.type.startsWith("CHOREOGRAPHY_")) mark("group", e.groupName ?? e.group);
}

function rights() {
	const u = session.user();
	return JSON.stringify([u?.permissions, u?.fleetPermissions, u?.bindings]);
}

/** checkUser reads what the user may do now, and then the lists again if it is something else. */
export async function checkUser() {
	try {
		session.setUser(await api.get("/api/v1/auth/me"));
	} catch {
		return; // a login that ended is noticed by the next request
	}
	if (readWith && (rights() !== readWith || state.failure)) readAll();
}

let ticker = 0;

/** ticking draws ages again while the page is looked at. */
function ticking() {
	if (ticker) return;
	ticker = setInterval(() => document.hidden || redraw(), 1000);
	setInterval(dropEnded, 15000);
	// No event tells users that their own rights changed.
	document.addEventListener("visibilitychange", () => document.hidden || !session.current() || checkUser());
}

/** listedFor is how long the gateway lists an instance that ended, in milliseconds. */
const listedFor = 60000;
/** kept is the ended instances that it lists for longer, such as frozen ones. */
let kept = new Set();

/** dropEnded reads the instances again when some have left the gateway's list, which no event says. */
async function dropEnded() {
	if (state.stream !== "live") return;
	const old = [...instances.values()].filter((i) => hasEnded(i) && Date.parse(i.finishedAt) < api.now() - listedFor).map((i) => i.uid + " " + i.finishedAt);
	if (old.every((k) => kept.has(k))) return;
	kept = new Set(old);
	await replace(lists.instance).catch(() => kept.clear());
	redraw();
}

/**
 * derived returns f's result, computed again only when a list has changed. Large lists are
 * computed at most every 100 ms.
 * @template T
 * @param {("instances" | "nodes" | "groups")[]} from
 * @param {(...args: any[]) => T} f
 * @returns {(...args: any[]) => T}
 */
export function derived(from, f) {
	let seen = "", result, at = 0, waiting = false;
	return (...args) => {
		const now = JSON.stringify([from.map((name) => version[name]), args]);
		const sameArguments = seen.slice(seen.indexOf("]")) === now.slice(now.indexOf("]"));
		if (now === seen) return result;
		if (sameArguments && instances.size > 2000 && Date.now() - at < 100) {
			if (!waiting) setTimeout(() => ((waiting = false), redraw()), 100);
			waiting = true;
			return result;
		}
		seen = now;
		result = f(...args);
		at = Date.now();
		return result;
	};
}
