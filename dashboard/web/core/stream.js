// The event stream of the gateway. All tabs of a login share one connection, because a browser
// has few to one host: the tab that holds a lock reads the stream and passes it on. When that tab
// closes, another one takes the lock and resumes after the last event that it knows.
//
// A tab that the browser freezes gives the lock back. A visible tab asks the leader for an answer every
// two seconds, and takes the lock away if none comes. Hidden tabs get messages at once, but their
// timers may be a minute late.
import * as api from "./api.js";

/** pingEvery is how often a visible tab asks the leader, in milliseconds. */
const pingEvery = 2000;
/** quiet is how long the gateway may send nothing before it is asked for an answer, in milliseconds. */
const quiet = 20000;
/** patience is how long a request for an answer or a ticket may take, in milliseconds. */
const patience = 10000;
/** mostPings is how many questions the leader may leave unanswered. */
const mostPings = 4;

/**
 * Stream follows the events. Its owner sets the handlers. opened gets the position of the stream,
 * event gets each event, and state gets "connecting", "live" or "waiting" with why and when the next
 * attempt begins. refused is called when the user may not follow events.
 */
export class Stream {
	/**
	 * @param {{opened: (latest: string) => void, event: (event: any) => void, state: (state: string, why?: string, retryAt?: number) => void, refused: (err: any) => void}} handlers
	 * @param {string} login names the login, so that only its tabs share the stream
	 */
	constructor(handlers, login) {
		this.handlers = handlers;
		/** last is the id of the last event, or the position of the stream before the first. */
		this.last = "";
		this.isOpen = false;
		this.leads = false;
		/** id names this tab in messages, and leader is the id of the tab that leads, if it is known. */
		this.id = String(Math.random());
		this.leader = "";
		/** unanswered counts the pings since the leader sent something. */
		this.unanswered = 0;
		this.attempt = 0;
		/** @type {EventSource | null} */
		this.source = null;
		/** turn is aborted when this tab no longer waits for the lock. */
		this.turn = /** @type {AbortController | undefined} */ (undefined);
		this.timer = 0;
		/** heardAt is when the gateway last sent something, in milliseconds of this clock. */
		this.heardAt = 0;
		const probing = setInterval(() => this.probe(), quiet / 2);
		this.current = ["connecting"];
		this.ended = new AbortController();
		this.ended.signal.addEventListener("abort", () => clearInterval(probing));
		this.name = "orrery-events-" + login;
		// Browsers have locks only on pages that come over TLS or from this machine.
		if (navigator.locks && globalThis.BroadcastChannel) this.share();
		else this.lead();
	}

	share() {
		this.channel = new BroadcastChannel(this.name);
		this.channel.onmessage = ({ data }) => this.receive(data);
		this.follow();
		const pinging = setInterval(() => this.ping(), pingEvery);
		this.ended.signal.addEventListener("abort", () => clearInterval(pinging));
		const once = { signal: this.ended.signal };
		// A page that the browser keeps for the way back must not keep the stream.
		addEventListener("pagehide", () => this.close(), once);
		document.addEventListener("freeze", () => this.stepDown(), once);
		document.addEventListener("resume", () => this.follow(), once);
	}

	/** tell sends a message to the other tabs. */
	tell(kind, more) {
		this.channel?.postMessage({ ...more, kind, from: this.id });
	}

	/** receive takes a message of another tab. */
	receive(data) {
		if (data.kind === "lead") {
			if (this.leads) this.follow(); // the other tab took the lock
			this.leader = data.from;
		}
		if (this.leads) {
			if (data.kind === "hello") this.tell("state", { state: this.current, last: this.last });
			if (data.kind === "ping") this.tell("pong");
			return;
		}
		if (data.kind === "hello" || data.kind === "ping") return;
		if (data.from !== (this.leader ||= data.from)) return; // it was frozen, and has not yet found out
		this.unanswered = 0;
		if (data.kind === "state") {
			if (data.state[0] === "live") this.opened(data.last);
			this.set(...data.state);
		} else if (data.kind === "event" && this.isOpen) this.take(data.id, data.event);
	}

	/**
	 * claim waits for the lock, and then leads until the lock is taken away.
	 * @param {boolean} steal takes the lock from the tab that has it
	 */
	claim(steal) {
		this.turn?.abort();
		const turn = (this.turn = new AbortController());
		navigator.locks.request(this.name, steal ? { steal } : { signal: turn.signal }, () => new Promise((/** @type {(v?: any) => void} */ release) => {
			if (turn.signal.aborted) return release();
			this.release = release;
			this.lead();
		})).catch(() => turn === this.turn && !turn.signal.aborted && this.follow()); // it was taken away
	}

	/** ping takes the lock if the leader has not answered for some time. */
	ping() {
		if (this.leads) return;
		if (document.hidden) return void (this.unanswered = 0);
		if (this.unanswered++ < mostPings) return this.tell("ping");
		this.unanswered = 0;
		this.claim(true);
	}

	/** lead reads the stream in this tab. */
	lead() {
		this.leads = true;
		this.tell("lead");
		this.open();
	}

	/** stepDown ends the lead of this tab. It does not wait for the lock either. */
	stepDown() {
		this.turn?.abort();
		this.leads = false;
		this.leader = "";
		this.unanswered = 0;
		clearTimeout(this.timer);
		this.source?.close();
		this.release?.();
	}

	/** follow leaves the lead to another tab, and waits for the lock. */
	follow() {
		if (this.ended.signal.aborted) return;
		this.stepDown();
		this.claim(false);
		this.tell("hello");
	}

	async open() {
		clearTimeout(this.timer);
		this.set("connecting");
		try {
			const { ticket } = await api.post("/api/v1/events/ticket", undefined, { signal: AbortSignal.timeout(patience) });
			if (!this.leads || this.ended.signal.aborted) return;
			const query = new URLSearchParams({ ticket });
			if (this.last) query.set("lastSequence", this.last);
			this.listen(new EventSource("/api/v1/events/stream?" + query));
		} catch (err) {
			if (!this.leads || this.ended.signal.aborted) return;
			if (err.status === 403) {
				this.close(); // the next tab of the login has to find out too
				return this.handlers.refused(err);
			}
			this.retry(err.message);
		}
	}

	listen(source) {
		this.source?.close();
		this.source = source;
		this.heardAt = Date.now();
		source.addEventListener("connected", (ev) => {
			const latest = String(JSON.parse(ev.data).latestSequence);
			this.last ||= latest;
			this.attempt = 0;
			this.heardAt = Date.now();
			this.set("live");
			this.opened(this.last);
		});
		source.addEventListener("message", (ev) => {
			this.heardAt = Date.now();
			const event = JSON.parse(ev.data);
			// An event that the gateway does not keep has no id of its own, but the one before.
			const id = event.type === "RESYNC_REQUIRED" ? String(event.latestSequence) : ev.lastEventId === this.last ? "" : ev.lastEventId;
			this.tell("event", { id, event });
			this.take(id, event);
		});
		// The browser would retry with the ticket that is used up.
		source.onerror = () => this.retry("");
	}

	/** probe asks a gateway that is quiet for an answer. A connection to one that stands still does not break. */
	async probe() {
		if (!this.leads || this.current[0] === "waiting" || !this.source || Date.now() - this.heardAt < quiet) return;
		if (this.current[0] === "connecting") return this.retry("");
		const source = this.source;
		await api.get("/api/v1/auth/me", {}, { signal: AbortSignal.timeout(patience) }).catch((err) => {
			if (err.status === undefined || err.status === 0) if (source === this.source && Date.now() - this.heardAt >= quiet) this.retry("");
		});
	}

	/** opened reports the first position of the stream, once. */
	opened(latest) {
		if (this.isOpen) return;
		this.isOpen = true;
		this.last = latest;
		this.handlers.opened(latest);
	}

	/** take takes an event once, also if both the old and the new leader had it. */
	take(id, event) {
		if (id && event.type !== "RESYNC_REQUIRED" && !isAfter(id, this.last)) return;
		if (id) this.last = id;
		this.handlers.event(event);
	}

	retry(why) {
		this.source?.close();
		if (this.ended.signal.aborted) return;
		const wait = Math.min(15000, 250 * 2 ** ++this.attempt) * (0.75 + Math.random() / 2);
		this.timer = setTimeout(() => this.open(), wait);
		this.set("waiting", why, Date.now() + wait);
	}

	/** retryNow connects without waiting for the next attempt. */
	retryNow() {
		if (this.leads && this.current[0] === "waiting") this.open();
	}

	set(state, why, retryAt) {
		this.current = [state, why, retryAt];
		if (this.leads) this.tell("state", { state: this.current, last: this.last });
		this.handlers.state(state, why, retryAt);
	}

	/** close ends the stream in this tab. */
	close() {
		this.ended.abort();
		this.stepDown();
		this.channel?.close();
		this.channel = undefined;
	}
}

/**
 * isAfter compares ids of events: a revision, or a revision and the number of an event in it.
 * @param {string} id
 * @param {string} last
 */
export function isAfter(id, last) {
	const [rev, n] = parts(id), [lastRev, lastN] = parts(last);
	return rev === lastRev ? n > lastN : rev > lastRev;
}

/** parts splits an id. Without a number it is that of the revision's last event. */
function parts(id) {
	const [rev, n] = id.split("-");
	return [Number(rev), n === undefined ? Infinity : Number(n)];
}
