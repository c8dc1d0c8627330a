/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_ENGINE_H
#define AGENT_ENGINE_H

/**
 * @file
 * Connections to the engine that carry requests: HTTP/1.1, kept alive, one request at a time on
 * each, on the agent's epoll set. A request costs a send and a receive, a token a receive; a
 * connection is told to epoll once in its life. (libcurl, which looks after /health and what else
 * is rare, takes a third more CPU for the same: perf/e2e/gateway/README.md.)
 *
 * A connection that was idle may have been closed by the engine meanwhile. That is looked at before
 * a request is sent; when none of it could be sent all the same, it goes over a new connection,
 * which has --connect-ms for itself. A request of which a byte has been sent is never sent again:
 * the engine may have begun with it.
 *
 * From four requests under way on, a connection for each four, 16 at most, is open before a request
 * needs it. Whoever closes one of those unasked, or cannot be reached, gets no more of them for a
 * second. Spare connections are closed after a minute.
 *
 * All of the one thread.
 */

#include "app.h"
#include "kvr_http_reader.h"

#include <sys/socket.h>

struct app_engine;

/** How the engine has ended a request. */
enum app_end { APP_END_WELL, APP_END_BROKEN, APP_END_LATE };

/** Who asks. */
struct app_ask_ops {
	/** May more be read? Otherwise the engine waits until app_engine_resume(). */
	bool (*takes)(void *arg);
	/** As those of kvr_http_reader.h. -ECANCELED: the head cannot be handed on; -EOVERFLOW: it
	 * is too long; -ENOMEM. */
	struct kvr_http_reader_ops answer;
	/** The answer is whole, or will not be, and @p why: in words that go behind "the engine
	 * fails it". The last call. */
	void (*ended)(void *arg, enum app_end how, const char *why);
};

/** What is sent, and who hears of the answer; it stays where it is until its end. */
struct app_ask {
	const struct app_ask_ops *ops;
	void *arg;
	struct app_conn *conn; /**< NULL: none */
	char *head;	       /**< ends with the empty line; freed by the owner, as content is */
	size_t head_len;
	char *content;
	size_t content_len;
	bool is_head; /**< the method is HEAD */
};

/** @return 0 or -ENOMEM. */
int app_engine_init(struct app *a);
void app_engine_fini(struct app *a);

/** Where the engine is: whoever has just said that it is well. */
void app_engine_at(struct app *a, const struct sockaddr *at, socklen_t len);

/** Send a request. Of its end may be told from inside, when there is no way to the engine. */
void app_engine_ask(struct app *a, struct app_ask *ask);

/** Nobody wants the answer any more: the connection is closed, so that the engine stops. */
void app_engine_drop(struct app *a, struct app_ask *ask);

/** What it has brought has been handed on: read again. */
void app_engine_resume(struct app *a, struct app_ask *ask);

/** From epoll: @p name is what the set was given. */
void app_engine_ready(struct app *a, uint32_t name, uint32_t events);

/** Apply the limits: --connect-ms to connections, --inactivity-s to requests. A request that is
 * paused has no limit: the engine waits for the router. */
void app_engine_turn(struct app *a);
uint64_t app_engine_due_us(const struct app *a);

/** Open one ahead, if it is time: the turn's frames have been sent. */
void app_engine_ahead(struct app *a);

#endif
