// Reading again what an event says has changed.
import * as live from "../core/live.js";

/** soon is how long a reload waits for more events, in milliseconds. */
const soon = 500;

/**
 * reloadOn calls reload soon after events that match, and once after the last of them. It returns a
 * function that ends it. Events that were missed count as a match.
 * @param {(event: any) => boolean} matches
 * @param {() => any} reload
 * @param {number} [every] is the shortest time between two calls, in milliseconds
 */
export function reloadOn(matches, reload, every) {
	const again = spaced(reload, every);
	const end = live.subscribe((e) => {
		if (e.type === "RESYNC_REQUIRED" || matches(e)) again();
	});
	return () => {
		again.end();
		end();
	};
}

/**
 * spaced returns a function that calls f soon, and not again before a time has passed. Calls in between
 * are one call at the end of it.
 * @param {() => any} f
 * @param {number} [every] is that time in milliseconds
 */
export function spaced(f, every = soon) {
	let waiting = 0, last = -Infinity;
	const call = () => {
		if (waiting) return;
		const left = Math.min(every, last + every - Date.now()); // the clock may be set back
		waiting = setTimeout(() => {
			waiting = 0;
			last = Date.now();
			f();
		}, Math.max(soon, left));
	};
	return Object.assign(call, { end: () => clearTimeout(waiting) });
}

/** changed matches the events about changes of a kind of object. */
export function changed(...kinds) {
	return (e) => e.type === "RESOURCE_CHANGED" && kinds.includes(e.kind);
}
