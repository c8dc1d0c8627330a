-- SPDX-License-Identifier: BSD-3-Clause
-- Send a file in a loop at rising rates, and print the frames sent and received in each step of ten seconds.
package.path = package.path .. ";?.lua;test/?.lua;app/?.lua;"
require "Pktgen"

pktgen.set("0", "count", 0)
pktgen.pcap("0", "enable")
for _, percent in ipairs({1, 2, 5, 10, 20, 50, 100}) do
  pktgen.set("0", "rate", percent)
  pktgen.clr()
  pktgen.start("0")
  pktgen.delay(10000)
  pktgen.stop("0")
  pktgen.delay(500) -- frames in flight
  local s = pktgen.portStats("0", "port")[0]
  printf("rate %d: sent %d, received %d, not taken %d\n", percent, s.opackets, s.ipackets, s.oerrors)
end
pktgen.quit()
