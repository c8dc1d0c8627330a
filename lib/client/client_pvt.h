/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CLIENT_PVT_H
#define KVR_CLIENT_PVT_H

/**
 * @file
 * Internals of the client. One slot per request, found by id without a search: the low half of an
 * id is the slot number + 1, the high half counts the uses of the slot. One state machine per slot.
 *
 *	            ACCEPTED queued       ACCEPTED sent        ACCEPTED running, RESPONSE
 *	SENDING --> ROUTING ------> QUEUED ------> DISPATCHED -----------------> RUNNING --> free
 *	   ^           |  20 ms, doubling            | PROBE: not acknowledged       |
 *	   +-----------+<----------------------------+ (or: unknown, start over)     |
 *	any state -- cancel, time limit --> CANCELLING (CANCEL until CANCELLED) --> free
 *
 * Timers: repeat retransmits what the state requires, ack delays acknowledgements, limit is the
 * time limit of the request.
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
#define CLIENT_NO_ANSWER_US	1000000u /* longest interval while a PROBE is unanswered */
#define CLIENT_CANCEL_US	20000u
#define CLIENT_CANCEL_MAX_US	1000000u
#define CLIENT_CANCEL_TRIES	10u
#define CLIENT_RELEASE_US	20000u
#define CLIENT_RELEASE_MAX_US	1000000u
#define CLIENT_RELEASE_LIMIT_US 5000000u
#define CLIENT_RELEASES		1024u /* releases of sessions in progress */
#define CLIENT_ACK_US		5000u
#define CLIENT_ACK_ITEMS	16u
#define CLIENT_ACK_FIRST	KVR_WIRE_UNPROVEN_ITEMS /* before the first acknowledgement */
#define CLIENT_ENDED_US                                                                            \
	3000000u		   /* wait for items of a request that the router reports as ended \
				    */
#define CLIENT_LATE_US	   100000u /* route_wait: wait for ACCEPTED after the first item */
#define CLIENT_PACE_US	   1000u   /* large messages: interval between groups of frames ... */
#define CLIENT_PACE_FRAMES 64u /* ... of initially this size; a default socket buffer holds 90 */
#define CLIENT_PACE_LEAST                                                                          \
	8u /* minimum; halved per retransmission, as an equal pace would cause equal losses */
#define CLIENT_HOLD_ITEMS    64u /* items held until earlier ones arrive */
#define CLIENT_TEXT	     256u
#define CLIENT_DELIVER_US    1000u /* interval of polling a connection that accepts no more data */
#define CLIENT_DELIVER_BYTES (4u << 20) /* of one body per poll */
#define CLIENT_AGAIN_US	     5000u	/* first retry when the agent was not ready; doubles */
#define CLIENT_AGAIN_MAX_US  250000u
#define CLIENT_ASSEMBLY	     (8u << 20) /* bytes of reassembly: 128 items, or LOADS */
#define CLIENT_HOLD_BYTES                                                                          \
	(CLIENT_HOLD_ITEMS * (KVR_WIRE_MAX_FRAME - KVR_WIRE_MIN_FRAME)) /* bytes of items held */

enum client_state {
	CLIENT_FREE = 0,
	CLIENT_FRESH,	/* submitted, nothing sent */
	CLIENT_SENDING, /* frames of the ROUTE are still to be sent */
	CLIENT_ROUTING, /* waiting for the first answer */
	CLIENT_QUEUED,
	CLIENT_DISPATCHED,
	CLIENT_RUNNING,
	CLIENT_CANCELLING,
	CLIENT_ENDED, /* without callbacks only: the end was not read yet */
};

enum client_timer {
	CLIENT_T_CONNECT = 1,
	CLIENT_T_REPEAT,
	CLIENT_T_ACK,
	CLIENT_T_LIMIT,
	CLIENT_T_RELEASE,
	CLIENT_T_DELIVER
};

/** An item that waits: for earlier items (held), or for its reader (ready). */
struct client_item {
	struct client_item *next;
	struct kvr_client_item item; /* data follows the struct */
};

/** A body being sent to the agent of one leg. */
struct client_delivery {
	struct client_req *req;
	struct kvr_timer timer; /* polls the connection */
	uint64_t handle;	/* of the attempt that it belongs to; 0: no agent known yet */
	char addr[KVR_HINT_MAX_ADDR + 1];
	char head[256]; /* of the HTTP request */
	uint32_t head_len;
	size_t sent; /* of head and body */
	uint32_t gap_us;
	int fd; /* -1: none */
	bool done;
	char answer[64]; /* beginning of the answer */
	uint32_t answer_len;
};

/** A body that does not pass the router. Kept until all agents have it and the first item
 * arrived. */
struct client_away {
	uint8_t *body;
	size_t len;
	uint8_t token[KVR_WIRE_TOKEN];
	struct client_delivery to[2]; /* main leg, prefill leg */
};

struct client_req {
	uint64_t id;
	uint64_t handle;      /* name given by the router, 0 until known */
	uint64_t dead_handle; /* name at a router that lost the request */
	uint8_t state;	      /* enum client_state */
	bool query, direct;
	bool quiet;	      /* ACCEPTED may be omitted */
	bool book;	      /* BOOK: the user runs the request */
	bool reporting;	      /* `report` is unacknowledged, and `ack` retransmits it */
	uint8_t kind;	      /* of the message: KVR_ROUTE or KVR_POTENTIAL_LOADS */
	bool end_reported;    /* the end was reported to the user */
	bool answered;	      /* FREE: the complete answer of the last request was received */
	bool accepted;	      /* the choice is known */
	bool probing;	      /* a PROBE is unanswered */
	bool sent_on;	      /* SENDING: ACCEPTED arrived before the last frame was sent */
	bool ended_there;     /* the router reported Ended: give up after CLIENT_ENDED_US */
	bool adrift;	      /* DIRECT: the router lost the request after its first item; the agent
				 continues */
	uint8_t end_reason;   /* CANCELLING: enum kvr_client_reason for the end */
	uint32_t tries;	      /* number of CANCELs sent */
	uint32_t backoff_us;  /* next interval of retransmission */
	uint32_t gap_us;      /* current interval */
	uint64_t received_us; /* last time a message about the request was received */
	struct kvr_timer repeat, ack, limit;
	uint8_t *msg; /* ROUTE, until the first item, in case the router loses the request */
	uint32_t msg_len;
	struct kvr_wire_ids ids; /* of the current copies */
	struct kvr_frag frag;	 /* progress of the current copy */
	uint64_t *again;	 /* bit map of fragments to retransmit, or NULL */
	uint32_t n_again;	 /* bits set in it */
	uint32_t frame_bytes;	 /* frame size of the current copy */
	uint32_t pace;		 /* frames per CLIENT_PACE_US */
	uint32_t next_seq;	 /* sequence number of the next item */
	bool ended_by_text; /* the last item stated why the agent stopped, and was not delivered */
	uint32_t unacked;   /* items since the last acknowledgement */
	bool acked;	    /* an acknowledgement was sent */
	uint32_t held_n;
	uint32_t held_bytes;
	uint32_t ready_bytes;			/* of ready items and the one handed out */
	struct kvr_udp_addr item_from;		/* destination of acknowledgements */
	struct client_item *held;		/* by ascending seq */
	struct client_item *ready, *ready_last; /* for kvr_client_next_item(), by seq */
	struct client_item *reading;		/* handed out by kvr_client_next_item() */
	struct kvr_client_choice choice;
	bool place_known; /* the last item names its rank */
	struct kvr_client_place place;
	struct client_away *away;
	char *addr;			 /* memory of the choice's addresses, or NULL */
	struct kvr_wire_progress report; /* BOOK: last report */
	struct kvr_wire_ids report_ids;
	uint32_t report_us; /* next interval of retransmission */
	struct kvr_client_end end;
	const struct kvr_client_ops
		*ops; /* NULL: items and end are kept for kvr_client_next_item() */
	void *user;
	uint32_t next_free;
	char *text;		    /* of the end, kept for the reader */
	struct client_track *track; /* tracking data of the last item, or NULL */
};

/** The tracker and its memory. */
struct client_track {
	struct kvr_client_tracker t;
	bool known; /* the router sent a tracker */
	uint8_t details[KVR_HINT_MAX_DETAILS];
	uint8_t link[KVR_HINT_MAX_TRACE];
};

/** A session whose release is unanswered. */
struct client_release {
	LIST_ENTRY(client_release) link;
	struct kvr_wire_ids ids; /* of all copies */
	struct kvr_timer timer;
	uint64_t until_us;
	uint32_t backoff_us;
	uint16_t pool;
	void (*on_released)(struct kvr_client *client, const char *session, int status,
			    uint16_t code, void *user);
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
	bool connecting, connected, refreshing; /* refreshing: a refresh by the library itself */
	bool closing;				/* being destroyed: submits are rejected */
	int connect_status;
	uint16_t connect_code; /* of the last rejection of this connect; 0: none */
	bool connect_retryable;
	char connect_text[CLIENT_TEXT];
	uint32_t router_epoch;
	uint64_t cookie;			   /* proves the client's address to the router */
	uint32_t frame_bytes;			   /* largest frame that both sides accept */
	uint32_t max_tokens, max_hashes, max_body; /* limits of the router */
	uint32_t max_message, max_frames;
	struct kvr_client_pool *pools;
	char *pool_names;
	uint32_t n_pools;
	/* requests */
	struct client_req *req;
	uint32_t free_head, free_tail; /* slot numbers + 1, oldest first */
	uint32_t live;
	uint64_t ended_id; /* its end was returned by kvr_client_next_item(): freed by the next call
			    */
	/* sessions */
	LIST_HEAD(, client_release) releases;
	uint32_t n_releases;
	uint64_t last_release; /* number of the last release */
};

/* connect.c */
void kvr_client__connect_timer(struct kvr_client *client);
void kvr_client__on_connected(struct kvr_client *client, const struct kvr_wire_hdr *h,
			      const uint8_t *body, uint32_t len);
void kvr_client__connect_refused(struct kvr_client *client, const uint8_t *body);
/** Largest ROUTE body that the router accepts. */
uint32_t kvr_client__max_message(const struct kvr_client *client);
/** The router sent a frame with this epoch: connect again if it is a new incarnation. */
void kvr_client__saw_epoch(struct kvr_client *client, uint32_t epoch);

/* request.c: the slot and what it sends */
struct client_req *kvr_client__find(const struct kvr_client *client, uint64_t id);
/** Return true if the last request of a free slot was @p id, and its complete answer was
 * received. */
bool kvr_client__answered(const struct kvr_client *client, uint64_t id);
void kvr_client__send_empty(struct kvr_client *client, struct client_req *req,
			    enum kvr_wire_kind kind);
void kvr_client__send_probe(struct kvr_client *client, struct client_req *req);
void kvr_client__start_route(struct kvr_client *client, struct client_req *req);
/** The router requires this cookie in the ROUTE: retransmit at once. */
void kvr_client__prove(struct kvr_client *client, struct client_req *req, uint64_t cookie,
		       bool sent);
void kvr_client__repeat(struct kvr_client *client, struct client_req *req);
/** A new incarnation of the router answered: ask it about every unanswered request, by timer, in
 * groups of frames. */
void kvr_client__ask_all(struct kvr_client *client);
/** Start over: the router does not know the request. */
void kvr_client__restart(struct kvr_client *client, struct client_req *req);
/** ACCEPTED arrived while frames are still being sent. */
void kvr_client__sent_on(struct client_req *req);
/** Retransmit while waiting, because the worker has not acknowledged. */
void kvr_client__resend(struct kvr_client *client, struct client_req *req);
/** MISSING: retransmit the fragments that the router lacks. */
void kvr_client__on_missing(struct kvr_client *client, struct client_req *req, const uint8_t *body);
void kvr_client__watch(struct kvr_client *client, struct client_req *req, enum client_state state);
void kvr_client__drop_msg(struct client_req *req);
/** Set the handle of the current attempt; 0: unknown. Drops held items of another attempt, which
 * have the same numbers but other content. */
void kvr_client__set_handle(struct client_req *req, uint64_t handle);
void kvr_client__start_cancel(struct kvr_client *client, struct client_req *req,
			      enum kvr_client_reason reason);
/** Report the end, once, and free the slot, or keep it for the reader. */
void kvr_client__end(struct kvr_client *client, struct client_req *req,
		     const struct kvr_client_end *e);
void kvr_client__end_reason(struct kvr_client *client, struct client_req *req,
			    enum kvr_client_reason reason, bool retryable);
/** Report the end, but keep the slot. */
void kvr_client__report_end(struct kvr_client *client, struct client_req *req,
			    const struct kvr_client_end *e);
void kvr_client__free(struct kvr_client *client, struct client_req *req);

/* deliver.c: bodies that are sent to agents directly */
/** Copy the body. @return 0 or -ENOMEM. */
int kvr_client__away_take(struct client_req *req, const void *body, size_t len,
			  const uint8_t token[KVR_WIRE_TOKEN]);
/** ACCEPTED named agents. */
void kvr_client__deliver(struct kvr_client *client, struct client_req *req,
			 const struct kvr_hints *h);
void kvr_client__deliver_timer(struct kvr_client *client, struct client_delivery *delivery);
/** The first item arrived: free a body that was delivered. */
void kvr_client__away_settle(struct kvr_client *client, struct client_req *req);
void kvr_client__away_drop(struct kvr_client *client, struct client_req *req);

/* report.c: booked requests, and loads */
void kvr_client__repeat_report(struct kvr_client *client, struct client_req *req);
void kvr_client__on_progress_ack(struct kvr_client *client, struct client_req *req,
				 const uint8_t *body);
/** The router does not know the booking any more. */
void kvr_client__book_over(struct kvr_client *client, struct client_req *req);
void kvr_client__on_loads(struct kvr_client *client, struct client_req *req, const uint8_t *body);

/* answer.c: answers of the router about a request */
void kvr_client__on_accepted(struct kvr_client *client, struct client_req *req,
			     const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_client__on_rejected(struct kvr_client *client, struct client_req *req,
			     const struct kvr_wire_hdr *h, const uint8_t *body);
/** ACCEPTED of a request whose complete answer overtook it. */
void kvr_client__on_late_accepted(struct client_req *req, const uint8_t *body);

/* stream.c: items and their acknowledgements */
void kvr_client__on_response(struct kvr_client *client, struct client_req *req,
			     const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			     const uint8_t *body);
/** Handle a fragment of an item. @return true: reassemble the item. */
bool kvr_client__on_fragment(struct kvr_client *client, const struct kvr_udp_addr *from,
			     const struct kvr_wire_hdr *h);
/** Handle a copy of the first fragment of a complete item. @return true if the item was dropped
 * then, and is wanted now. */
bool kvr_client__item_again(const struct kvr_client *client, const struct kvr_wire_hdr *h);
/** An item of a request that has ended: acknowledge it, so that its sender stops. */
void kvr_client__on_stray(struct kvr_client *client, const struct kvr_udp_addr *from,
			  const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_client__send_ack(struct kvr_client *client, struct client_req *req, uint32_t flags);

/* track.c */
/** The last item arrived, perhaps early: keep the data of its hints. */
void kvr_client__track(struct client_req *req, const struct kvr_wire_response *w,
		       const uint8_t *hints);

/* release.c */
void kvr_client__release_timer(struct kvr_client *client, struct client_release *release);
void kvr_client__on_released(struct kvr_client *client, const struct kvr_wire_hdr *h,
			     const uint8_t *body);
/** REJECTED of a SESSION_RELEASE. */
void kvr_client__release_refused(struct kvr_client *client, const struct kvr_wire_hdr *h,
				 const uint8_t *body);
/** End all releases with -ECANCELED. */
void kvr_client__drop_releases(struct kvr_client *client);

/** client_hints.c: bytes of a hint list. */
const uint8_t *kvr_client__hints_bytes(const struct kvr_client_hints *h, uint32_t *len);

#endif
