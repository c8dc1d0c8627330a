/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_BODIES_H
#define AGENT_BODIES_H

/**
 * @file
 * Bodies of requests that do not come in frames (PROTOCOL.md, section 19): a DISPATCH names a
 * length and a token that is good once, and the client brings the body to our own HTTP port: PUT
 * /kvroute/body/TOKEN. One thread, no more than 64 connections, and no more bytes than
 * --bodies-bytes at one time. A body that does not come for --body-ms ends its request with 408.
 */

#include "app.h"

struct app_body; /* what a job waits for */

/** What the jobs that wait are told. */
struct app_bodies_ops {
	void (*come)(struct app_job *j, const char *message, size_t len); /* an HTTP message */
	void (*missed)(struct app_job *j, uint16_t status, const char *why);
};

/**
 * Listen, if that is wanted, and know what clients are told. @p ops must stay.
 * @return 0; -EINVAL --bodies or --bodies-advertise is no address and port in numbers;
 * -EADDRNOTAVAIL clients elsewhere would not find us there; another -errno of the socket.
 */
int app_bodies_start(struct app *a, const struct app_bodies_ops *ops);
void app_bodies_stop(struct app *a);

/** Something has happened at connection @p index, UINT32_MAX: at the listening socket. */
void app_bodies_ready(struct app *a, uint32_t index);

/** Connections and bodies whose time is over. */
void app_bodies_turn(struct app *a);

/** When app_bodies_turn() has something to do. UINT64_MAX: never. */
uint64_t app_bodies_due_us(const struct app *a);

/** A job waits for its body. @return NULL: out of memory. */
struct app_body *app_body_expect(struct app *a, struct app_job *j,
				 const struct kvr_agent_request *r);

/** The request of the DISPATCH; its body is not in it. */
const struct kvr_agent_request *app_body_request(const struct app_body *b);

/** It is not waited for any more. NULL is fine. */
void app_body_drop(struct app *a, struct app_body *b);

#endif
