/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_FOLDERS_H
#define ROUTER_FOLDERS_H

/**
 * @file
 * The EAL's runtime folder, one per file prefix, which DPDK never removes. A router keeps a locked
 * file in its folder, removes the folder at its end, and removes folders of dead routers: those
 * with such a file whose lock and EAL lock are free. Folders of other programs have no such file
 * and are left alone. Start and stop only, main thread.
 */

#include <stdint.h>

#define FOLDERS_MARK "kvroute.lock"
#define FOLDERS_MOST 256u /* removed at one start */

/** Before the EAL's start: lock the existing folder that the EAL will use. @return 0, also if it
 * cannot be locked; -EBUSY: a live router has it. */
int folders_hold(const char *file_prefix);

/** After the EAL's start: mark the folder of this process, and remove those of dead routers beside
 * it. Failures are ignored. @return number removed. */
uint32_t folders_start(void);

/** After the EAL's end: remove the own folder. */
void folders_stop(void);

/** Lock the mark of @p folder. @return a descriptor, or -errno; -EWOULDBLOCK: another process holds
 * it. */
int folders_claim(const char *folder);

/** Remove at most @p most marked folders of dead processes in @p base, except @p own (a name, may
 * be NULL). @return number removed. */
uint32_t folders_sweep(const char *base, const char *own, uint32_t most);

#endif
