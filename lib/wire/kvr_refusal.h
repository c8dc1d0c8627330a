/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REFUSAL_H
#define KVR_REFUSAL_H

/**
 * @file
 * What the sender of a message does when it is answered REJECTED: the two tables of PROTOCOL.md,
 * section 12. lib/client and lib/agent look here and nowhere else; tests/protocol compares the
 * document's cells with these.
 */

#include <stdbool.h>
#include <stdint.h>

/** The words of the tables. */
enum kvr_refusal {
	KVR_REFUSAL_NONE = 0, /* nobody refuses this kind: ignore */
	KVR_REFUSAL_REPEAT,   /* nothing: the timer repeats it, or the next one makes up for it */
	/* clients */
	KVR_REFUSAL_END,    /* it is over: report the code */
	KVR_REFUSAL_FIRST,  /* SENT: as end; else a copy of it is known, and this one is ignored */
	KVR_REFUSAL_BUSY,   /* SENT: report; if it was sent twice, one may live: CANCEL. Else ignore
			     */
	KVR_REFUSAL_COOKIE, /* the same again at once, with the cookie detail[0] */
	KVR_REFUSAL_RESTART, /* start over when that is possible, else report that it is lost */
	KVR_REFUSAL_LINGER,  /* its last items may be on their way: 3 s more */
	KVR_REFUSAL_DONE,    /* what it asked for needs nobody any more */
	/* agents */
	KVR_REFUSAL_SLOW,  /* tell the operator, again every 10 s */
	KVR_REFUSAL_HELLO, /* say HELLO, at most once a second */
	KVR_REFUSAL_STOP,  /* the router knows nothing of the request: do not repeat it any more */
	KVR_REFUSAL_OVER,  /* the router goes: end what it has given, HELLO until one is there */
	KVR_REFUSAL_ITEM,  /* replace the item detail[2], and those behind it */
	KVR_REFUSALS
};

/**
 * What to do about REJECTED @p code, whose `retryable` byte is @p retryable, of a message of
 * @p kind. Any values are allowed: kinds that are never refused give KVR_REFUSAL_NONE, codes of
 * the future are judged by @p retryable. Any thread.
 */
enum kvr_refusal kvr_refusal(uint8_t kind, unsigned int code, bool retryable);

/** The word of the document. Never NULL. */
const char *kvr_refusal_name(enum kvr_refusal what);

#endif
