/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_ANSWER_H
#define KVR_ENGINE_ANSWER_H

/**
 * @file
 * The answer of an engine on its way to the client: its head and content go in as they arrive, the
 * bytes of a response message (kvr_http.h) come out. Meanwhile it is read for tokens and errors.
 *
 * What comes out depends on the plan of the request (kvr_engine_request.h). Nothing of a folded
 * stream comes out before its end. The beginning of another stream is held back until its first
 * event is known, and to its end if that event is an error: a client that has received nothing can
 * try elsewhere. The content of a prefill leg never comes out.
 *
 * A folded stream that contains an error becomes an answer with the status of the error. One that
 * ends too early, or cannot be folded, becomes none: see kvr_engine_answer_finish().
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_engine.h"
#include "kvr_engine_fold.h"
#include "kvr_engine_request.h"
#include "kvr_engine_usage.h"
#include "kvr_http.h"
#include "kvr_sse.h"

/** State of one answer. Fields below "private" are private. */
struct kvr_engine_answer {
	uint16_t status;  /**< 0: no head yet; that of the error after a folded one */
	bool stream;	  /**< its content is text/event-stream */
	bool content;	  /**< bytes have come after the head */
	bool begun;	  /**< content has been taken: the client may have it */
	bool retry_after; /**< the head has Retry-After */
	bool too_long;	  /**< not a stream, and too long to be read for usage */
	struct kvr_engine_usage usage;
	/* private */
	enum kvr_engine_kind kind;
	enum kvr_engine_api api;
	enum kvr_engine_form form;
	bool prefill, content_is_text, drop_total, drop_running;
	bool finished;
	size_t max_bytes;
	struct kvr_engine_buffer out;	/* not taken yet */
	size_t taken;			/* bytes of `out` */
	struct kvr_engine_buffer whole; /* content of an answer that is no stream */
	struct kvr_engine_buffer head;	/* fields of a folded answer */
	struct kvr_engine_buffer event; /* STRIP: incomplete event */
	struct kvr_sse sse;
	char *sse_memory;
	struct kvr_engine_fold *fold;
};

/**
 * Begin with the answer to a planned request. @p max_bytes bounds a folded answer and each event of
 * its stream. The object must not move until kvr_engine_answer_fini().
 */
void kvr_engine_answer_init(struct kvr_engine_answer *answer, const struct kvr_engine_plan *plan,
			    size_t max_bytes);

/** Free the memory. Has no effect on a zeroed object. */
void kvr_engine_answer_fini(struct kvr_engine_answer *answer);

/**
 * The head; hop-by-hop fields are left out.
 * @return 0; -ECANCELED the head does not fit a message; -ENOMEM.
 */
int kvr_engine_answer_head(struct kvr_engine_answer *answer, const struct kvr_http_head *head);

/**
 * Next bytes of the content.
 * @return 0; -EOVERFLOW a prefill answer is too long; -ENOMEM.
 */
int kvr_engine_answer_content(struct kvr_engine_answer *answer, const char *data, size_t len);

/**
 * The engine has sent the whole answer.
 * @return 0; or, for a stream that was to be folded, the error of kvr_engine_fold_finish().
 */
int kvr_engine_answer_finish(struct kvr_engine_answer *answer);

/**
 * The engine broke off, or the request was given up. What was held back becomes ready; nothing of
 * a folded stream does.
 */
void kvr_engine_answer_stop(struct kvr_engine_answer *answer);

/** Whether more content may be read; false while much waits to be taken. */
bool kvr_engine_answer_admits(const struct kvr_engine_answer *answer);

/** Bytes for the client, from the start of the message. @return how many are ready. */
size_t kvr_engine_answer_ready(const struct kvr_engine_answer *answer, const char **data);

/** The first @p len bytes of those ready have been taken. */
void kvr_engine_answer_take(struct kvr_engine_answer *answer, size_t len);

/** The verdict of a complete answer on its engine. */
enum kvr_engine_verdict kvr_engine_answer_judge(const struct kvr_engine_answer *answer);

/** Content of an answer that is no stream, and of a folded error. @return its length; 0: none. */
size_t kvr_engine_answer_whole(const struct kvr_engine_answer *answer, const char **data);

/** Text of the error that the answer is, as kvr_engine_error_text(). */
size_t kvr_engine_answer_error(const struct kvr_engine_answer *answer, char *buf, size_t size);

#endif
