-- What sluice-loadgen sends, for wrk: same method, headers and length (but always the same id).
wrk.method = "POST"
wrk.path = "/task"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"id":"00000000-0000-8000-8000-000000000000","payload":"' .. string.rep("a", 512) .. '"}'
