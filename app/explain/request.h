/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_REQUEST_H
#define EX_REQUEST_H

/** @file Making, naming and ending requests; see world.h. */

#include "world.h"

/** Read a route line; NULL with the problem noted. Not yet known by its id. */
struct ex_req *ex_req_read(struct ex_world *w, const json_t *obj, struct ex_problem *p);

void ex_req_free(struct ex_req *r);

/** Whether a request of that id is booked or waiting. */
bool ex_req_live(const struct ex_world *w, const char *id);

/** Remember an id whose request is over. */
void ex_req_ended(struct ex_world *w, const char *id);

/** Make it known; r->slot is the top of the pool's free slots. */
bool ex_req_enter(struct ex_world *w, struct ex_req *r);

#endif
