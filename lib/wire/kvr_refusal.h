/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REFUSAL_H
#define KVR_REFUSAL_H

/**
 * @file
 * Actions of the sender of a rejected message: the two tables of PROTOCOL.md, section 12.
 * lib/client and lib/agent have no other rule; tests/protocol compares the cells of the document
 * with these results.
 */

#include <stdbool.h>
#include <stdint.h>

/** Actions. */
enum kvr_refusal {
	KVR_REFUSAL_NONE = 0, /* this kind is never rejected: ignore */
	KVR_REFUSAL_REPEAT,   /* none: the timer repeats the message, or the next one replaces it */
	/* clients */
	KVR_REFUSAL_END,     /* end the request: report the code */
	KVR_REFUSAL_FIRST,   /* SENT: as END; else a copy is known: ignore */
	KVR_REFUSAL_BUSY,    /* SENT: report, and CANCEL if it was sent twice, as one copy may be
			      * live; else ignore */
	KVR_REFUSAL_COOKIE,  /* send the message again at once, with the cookie detail[0] */
	KVR_REFUSAL_RESTART, /* start over if possible, else report the request as lost */
	KVR_REFUSAL_LINGER,  /* wait 3 s more for the last items */
	KVR_REFUSAL_DONE,    /* done: the message is no longer needed */
	/* agents */
	KVR_REFUSAL_SLOW,  /* notify the operator; repeat every 10 s */
	KVR_REFUSAL_HELLO, /* send HELLO, at most once a second */
	KVR_REFUSAL_STOP,  /* the router does not know the request: stop repeating */
	KVR_REFUSAL_OVER,  /* the router stops: end its requests, send HELLO until answered */
	KVR_REFUSAL_ITEM,  /* replace the item detail[2] and all later ones */
	KVR_REFUSALS
};

/**
 * Action after REJECTED @p code with the `retryable` byte @p retryable, of a message of @p kind.
 * Any values are allowed: kinds that are never rejected give KVR_REFUSAL_NONE, unknown codes depend
 * on
 * @p retryable. Any thread.
 */
enum kvr_refusal kvr_refusal(uint8_t kind, unsigned int code, bool retryable);

/** Word in the document. Never NULL. */
const char *kvr_refusal_name(enum kvr_refusal what);

#endif
