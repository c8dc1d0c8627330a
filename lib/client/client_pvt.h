/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CLIENT_PVT_H
#define KVR_CLIENT_PVT_H

/**
 * @file
 * Inside of the client: one slot per request, found by its id without a search (the low half of
 * an id is the slot number + 1, the high half counts the slot's uses), one state machine per slot.
 *
 *	            ACCEPTED queued       ACCEPTED sent        ACCEPTED running, RESPONSE
 *	SENDING --> ROUTING ------> QUEUED ------> DISPATCHED -----------------> RUNNING --> free
 *	   ^           |  20 ms, doubling            | PROBE says: not acknowledged  |
 *	   +-----------+<----------------------------+   (or: unknown, start over)   |
 *	any state -- cancel, time limit --> CANCELLING (CANCEL until CANCELLED) --> free
 *
 * repeat: whatever the state sends again. ack: items wait to be acknowledged. limit: the time
 * limit of the request.
 */

#include "kvr_client.h"
#include "kvr_client_hints.h"
#include "kvr_client_on.h"
#include "kvr_hints.h"
#include "kvr_link.h"

#include <sys/queue.h>

#define CLIENT_CONNECT_US	100000u
#define CLIENT_CONNECT_MAX_US	1000000u
#define CLIENT_ROUTE_US		20000u
#define CLIENT_ROUTE_MAX_US	1000000u
#define CLIENT_PROBE_US		250000u
#define CLIENT_PROBE_MAX_US	2000000u
#define CLIENT_DEAF_US		1000000u /* at most, while a PROBE is unanswered */
#define CLIENT_CANCEL_US	20000u
#define CLIENT_CANCEL_MAX_US	1000000u
#define CLIENT_CANCEL_TRIES	10u
#define CLIENT_RELEASE_US	20000u
#define CLIENT_RELEASE_MAX_US	1000000u
#define CLIENT_RELEASE_LIMIT_US 5000000u
#define CLIENT_RELEASES		1024u /* of sessions, that wait for their answer */
#define CLIENT_ACK_US		5000u
#define CLIENT_ACK_ITEMS	16u
#define CLIENT_ACK_FIRST	KVR_WIRE_UNPROVEN_ITEMS /* before the first acknowledgement */
#define CLIENT_ENDED_US		3000000u /* items of a request that ended elsewhere may still come */
#define CLIENT_LATE_US		100000u	 /* route_wait: ACCEPTED may come so long after items */
#define CLIENT_PACE_US		1000u	 /* large messages: so many frames in each of these */
#define CLIENT_PACE_FRAMES	64u	 /* at first; a socket buffer of the usual size takes 90 */
#define CLIENT_PACE_LEAST	8u  /* halved with every copy: equal pace would lose the same */
#define CLIENT_HOLD_ITEMS	64u /* items held back until the ones before them arrive */
#define CLIENT_TEXT		256u
#define CLIENT_DELIVER_US	1000u	   /* between looks at a connection that takes no more */
#define CLIENT_DELIVER_BYTES	(4u << 20) /* of one body in one look */
#define CLIENT_AGAIN_US		5000u	   /* the agent was not ready: doubling */
#define CLIENT_AGAIN_MAX_US	250000u
#define CLIENT_ASSEMBLY		(8u << 20) /* bytes of messages in fragments: 128 items, or LOADS */
#define CLIENT_HOLD_BYTES                                                                          \
	(CLIENT_HOLD_ITEMS * (KVR_WIRE_MAX_FRAME - KVR_WIRE_MIN_FRAME)) /* of items held back */

enum client_state {
	CLIENT_FREE = 0,
	CLIENT_FRESH,	/* submitted, nothing sent */
	CLIENT_SENDING, /* frames of the ROUTE are still to be sent */
	CLIENT_ROUTING, /* waiting for the first answer */
	CLIENT_QUEUED,
	CLIENT_DISPATCHED,
	CLIENT_RUNNING,
	CLIENT_CANCELLING,
	CLIENT_ENDED, /* without callbacks only: the end waits to be read */
};

enum client_timer {
	CLIENT_T_CONNECT = 1,
	CLIENT_T_REPEAT,
	CLIENT_T_ACK,
	CLIENT_T_LIMIT,
	CLIENT_T_RELEASE,
	CLIENT_T_DELIVER
};

/** An item that waits: for the ones before it (held), or for its reader (ready). */
struct client_item {
	struct client_item *next;
	struct kvr_client_item item; /* data follows the struct */
};

/** A body on its way to the agent of one leg. */
struct client_delivery {
	struct client_req *r;
	struct kvr_timer timer; /* looks at the connection */
	uint64_t handle;	/* of the run it is for; 0: none has been named */
	char addr[KVR_HINT_MAX_ADDR + 1];
	char head[256]; /* of the HTTP request */
	uint32_t head_len;
	size_t sent; /* of head and body */
	uint32_t gap_us;
	int fd; /* -1: none */
	bool done;
	char answer[64]; /* the beginning of it */
	uint32_t answer_len;
};

/** A body that does not pass the router; until all agents have it and the answer has begun. */
struct client_away {
	uint8_t *body;
	size_t len;
	uint8_t token[KVR_WIRE_TOKEN];
	struct client_delivery to[2]; /* main leg, prefill leg */
};

struct client_req {
	uint64_t id;
	uint64_t handle;      /* router's name, 0 until it is known */
	uint64_t dead_handle; /* name at a router that has lost it */
	uint8_t state;	      /* enum client_state */
	bool query, direct;
	bool quiet;	     /* no word of where it went is waited for */
	bool book;	     /* its user runs it */
	bool reporting;	     /* `report` is not acknowledged: `ack` repeats it */
	uint8_t kind;	     /* of its message: KVR_ROUTE or KVR_POTENTIAL_LOADS */
	bool told;	     /* the user has been told the end */
	bool answered;	     /* FREE: the last one's whole answer has come */
	bool accepted;	     /* the choice is known */
	bool probing;	     /* a PROBE is unanswered */
	bool sent_on;	     /* SENDING: ACCEPTED has come before the last frame was sent */
	bool ended_there;    /* the router says Ended: give up after CLIENT_ENDED_US */
	bool adrift;	     /* DIRECT, begun, and the router has lost it: the agent goes on */
	uint8_t end_reason;  /* CANCELLING: enum kvr_client_reason for the end */
	uint32_t tries;	     /* CANCELs sent */
	uint32_t backoff_us; /* next gap of its repetitions */
	uint32_t gap_us;     /* the gap it is in */
	uint64_t heard_us;   /* last time anybody spoke about it */
	struct kvr_timer repeat, ack, limit;
	uint8_t *msg; /* ROUTE, until the first item: a router that has lost it gets it again */
	uint32_t msg_len;
	struct kvr_wire_ids ids; /* of the copies being sent */
	struct kvr_frag frag;	 /* where sending one is */
	uint64_t *again;	 /* bit map of the fragments to send again, or NULL */
	uint32_t n_again;	 /* bits set in it */
	uint32_t frame_bytes;	 /* they are cut to */
	uint32_t pace;		 /* frames sent each CLIENT_PACE_US */
	uint32_t next_seq;	 /* of the item to deliver next */
	bool worded;		 /* the last one said why its agent has stopped: no item */
	uint32_t unacked;	 /* items since the last ack */
	bool acked;		 /* one has been sent */
	uint32_t held_n;
	uint32_t held_bytes;
	uint32_t ready_bytes;			/* of ready items and the one being read */
	struct kvr_udp_addr item_from;		/* where acks go */
	struct client_item *held;		/* by rising seq */
	struct client_item *ready, *ready_last; /* for next_item, by seq */
	struct client_item *reading;		/* handed out by next_item */
	struct kvr_client_choice choice;
	bool place_known; /* the last item says where it comes from */
	struct kvr_client_place place;
	struct client_away *away;
	char *addr;			 /* what the choice points at, or NULL */
	struct kvr_wire_progress report; /* book: what was said last */
	struct kvr_wire_ids report_ids;
	uint32_t report_us; /* next gap of its repetitions */
	struct kvr_client_end end;
	const struct kvr_client_ops *ops; /* NULL: items and end are kept for next_item */
	void *user;
	uint32_t next_free;
	char *text;		    /* of the end, kept for its reader */
	struct client_track *track; /* what the last item says of how it went, or NULL */
};

/** The tracker and what it points at. */
struct client_track {
	struct kvr_client_tracker t;
	bool told; /* by the router */
	uint8_t details[KVR_HINT_MAX_DETAILS];
	uint8_t link[KVR_HINT_MAX_TRACE];
};

/** A session whose release has not been answered yet. */
struct client_release {
	LIST_ENTRY(client_release) link;
	struct kvr_wire_ids ids; /* of all copies */
	struct kvr_timer timer;
	uint64_t until_us;
	uint32_t backoff_us;
	uint16_t pool;
	void (*on_released)(struct kvr_client *c, const char *session, int status, uint16_t code,
			    void *user);
	void *user;
	uint32_t len;
	char session[KVR_HINT_MAX_SESSION + 1];
};

struct kvr_client {
	struct kvr_link link;
	struct kvr_udp_addr router;
	struct kvr_client_conf conf; /* strings are not kept */
	uint64_t source;
	struct kvr_client_stats stats;
	/* connecting */
	struct kvr_timer connect;
	uint32_t connect_backoff_us;
	struct kvr_wire_ids connect_ids;
	uint64_t connect_until_us;
	bool connecting, connected, quiet; /* quiet: a refresh of our own */
	bool closing;			   /* being destroyed: submits are refused */
	int connect_status;
	uint16_t connect_code; /* the last refusal of this connect; 0: none */
	bool connect_retryable;
	char connect_text[CLIENT_TEXT];
	uint32_t router_epoch;
	uint64_t cookie;			   /* proves our address to the router */
	uint32_t frame_bytes;			   /* both sides take */
	uint32_t max_tokens, max_hashes, max_body; /* of the router */
	uint32_t max_message, max_frames;
	struct kvr_client_pool *pools;
	char *pool_names;
	uint32_t n_pools;
	/* requests */
	struct client_req *req;
	uint32_t free_head, free_tail; /* slot numbers + 1, oldest first */
	uint32_t live;
	uint64_t dead_id; /* next_item has told its end: freed by the next call */
	/* sessions */
	LIST_HEAD(, client_release) releases;
	uint32_t n_releases;
	uint64_t last_release; /* number given to the last one */
};

/* connect.c */
void kvr_client__connect_timer(struct kvr_client *c);
void kvr_client__on_connected(struct kvr_client *c, const struct kvr_wire_hdr *h,
			      const uint8_t *body, uint32_t len);
void kvr_client__connect_refused(struct kvr_client *c, const uint8_t *body);
/** Largest body of a ROUTE that the router takes. */
uint32_t kvr_client__max_message(const struct kvr_client *c);
/** A frame of the router's own making carries this epoch: ask again when it is a new life. */
void kvr_client__saw_epoch(struct kvr_client *c, uint32_t epoch);

/* request.c: the slot and what it sends */
struct client_req *kvr_client__find(const struct kvr_client *c, uint64_t id);
/** Whether the last request of a free slot was this one, and its whole answer has come. */
bool kvr_client__answered(const struct kvr_client *c, uint64_t id);
void kvr_client__send_empty(struct kvr_client *c, struct client_req *r, enum kvr_wire_kind kind);
void kvr_client__send_probe(struct kvr_client *c, struct client_req *r);
void kvr_client__start_route(struct kvr_client *c, struct client_req *r);
/** The router wants this cookie with the ROUTE: again, at once. */
void kvr_client__prove(struct kvr_client *c, struct client_req *r, uint64_t cookie, bool sent);
void kvr_client__repeat(struct kvr_client *c, struct client_req *r);
/** Another life of the router has answered: ask it about every request that waits for its word, by
 * the timers, so many frames each CLIENT_PACE_US. */
void kvr_client__ask_all(struct kvr_client *c);
/** Start over: the router knows nothing of it. */
void kvr_client__restart(struct kvr_client *c, struct client_req *r);
/** ACCEPTED has come while its frames are still being sent. */
void kvr_client__sent_on(struct client_req *r);
/** Send it once more while waiting: the worker has not acknowledged it. */
void kvr_client__resend(struct kvr_client *c, struct client_req *r);
/** MISSING: send again what the router lacks of a ROUTE in fragments. */
void kvr_client__on_missing(struct kvr_client *c, struct client_req *r, const uint8_t *body);
void kvr_client__watch(struct kvr_client *c, struct client_req *r, enum client_state state);
void kvr_client__drop_msg(struct client_req *r);
/** Which run counts from now on, 0: none that is known. Items of another one that came early are
 * forgotten: theirs are the same numbers, and not the same words. */
void kvr_client__set_handle(struct client_req *r, uint64_t handle);
void kvr_client__start_cancel(struct kvr_client *c, struct client_req *r,
			      enum kvr_client_reason reason);
/** Tell the user, once, and free the slot (or keep it for its reader). */
void kvr_client__end(struct kvr_client *c, struct client_req *r, const struct kvr_client_end *e);
void kvr_client__end_reason(struct kvr_client *c, struct client_req *r,
			    enum kvr_client_reason reason, bool retryable);
/** Only tell the user; the slot goes on. */
void kvr_client__tell_end(struct kvr_client *c, struct client_req *r,
			  const struct kvr_client_end *e);
void kvr_client__free(struct kvr_client *c, struct client_req *r);

/* deliver.c: bodies that agents get over connections of their own */
/** Take a copy of the body. @return 0 or -ENOMEM. */
int kvr_client__away_take(struct client_req *r, const void *body, size_t len,
			  const uint8_t token[KVR_WIRE_TOKEN]);
/** ACCEPTED names agents. */
void kvr_client__deliver(struct kvr_client *c, struct client_req *r, const struct kvr_hints *h);
void kvr_client__deliver_timer(struct kvr_client *c, struct client_delivery *d);
/** An item has come: what has been delivered is not needed any more. */
void kvr_client__away_settle(struct kvr_client *c, struct client_req *r);
void kvr_client__away_drop(struct kvr_client *c, struct client_req *r);

/* report.c: requests that are only booked, and loads */
void kvr_client__repeat_report(struct kvr_client *c, struct client_req *r);
void kvr_client__on_progress_ack(struct kvr_client *c, struct client_req *r, const uint8_t *body);
/** The router does not know the booking any more. */
void kvr_client__book_over(struct kvr_client *c, struct client_req *r);
void kvr_client__on_loads(struct kvr_client *c, struct client_req *r, const uint8_t *body);

/* answer.c: what the router says about a request */
void kvr_client__on_accepted(struct kvr_client *c, struct client_req *r,
			     const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_client__on_rejected(struct kvr_client *c, struct client_req *r,
			     const struct kvr_wire_hdr *h, const uint8_t *body);
/** ACCEPTED of a request whose whole answer has overtaken it. */
void kvr_client__on_late_accepted(struct client_req *r, const uint8_t *body);

/* stream.c: items and their acknowledgement */
void kvr_client__on_response(struct kvr_client *c, struct client_req *r,
			     const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			     const uint8_t *body);
/** A fragment of an item. @return whether the item is to be put together. */
bool kvr_client__on_fragment(struct kvr_client *c, const struct kvr_udp_addr *from,
			     const struct kvr_wire_hdr *h);
/** The first fragment of an item that has been put together came again. @return whether the item
 * was not taken then, and is wanted now. */
bool kvr_client__item_again(const struct kvr_client *c, const struct kvr_wire_hdr *h);
/** An item of a request that is over: acknowledge it, so that its sender stops. */
void kvr_client__on_stray(struct kvr_client *c, const struct kvr_udp_addr *from,
			  const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_client__send_ack(struct kvr_client *c, struct client_req *r, uint32_t flags);

/* track.c */
/** The last item has come, perhaps early: keep what its hints say. */
void kvr_client__track(struct client_req *r, const struct kvr_wire_response *w,
		       const uint8_t *hints);

/* release.c */
void kvr_client__release_timer(struct kvr_client *c, struct client_release *r);
void kvr_client__on_released(struct kvr_client *c, const struct kvr_wire_hdr *h,
			     const uint8_t *body);
/** REJECTED of a SESSION_RELEASE. */
void kvr_client__release_refused(struct kvr_client *c, const struct kvr_wire_hdr *h,
				 const uint8_t *body);
/** End all of them: the client is being destroyed. */
void kvr_client__drop_releases(struct kvr_client *c);

/** Bytes of a hint list; hints.c. */
const uint8_t *kvr_client__hints_bytes(const struct kvr_client_hints *h, uint32_t *len);

#endif
