-- For Flux's job shell: put it into /etc/flux/shell/lua.d. It adds to the job's environment what task-begin prints.
local hooks = "/etc/barograph/hooks"

local function quoted(text)
    return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

local function first_line(command)
    local pipe = io.popen(command)
    local line = pipe and pipe:read("l") or ""
    if pipe then pipe:close() end
    return line
end

local function environment_of_task()
    local words = { "env" }
    for _, name in ipairs({ "LD_PRELOAD", "BAROGRAPH_DISABLE", "BAROGRAPH_RANKS", "BAROGRAPH_RING_DIR" }) do
        local value = shell.getenv(name)
        if value then words[#words + 1] = name .. "=" .. quoted(value) end
    end
    words[#words + 1] = "FLUX_JOB_NNODES=" .. quoted(shell.info.size)
    return table.concat(words, " ")
end

plugin.register {
    name = "barograph",
    handlers = {
        {
            topic = "shell.init",
            fn = function()
                pcall(function()
                    local name = "flux-" .. shell.getenv("FLUX_JOB_ID") .. "@" .. first_line("/bin/uname -n")
                    local words = { environment_of_task(), "/bin/sh", hooks .. "/bounded", "task-begin",
                        quoted(name), first_line("/usr/bin/id -u"), "0", "0" }
                    for line in io.popen(table.concat(words, " ")):lines() do
                        local variable, value = line:match("^([A-Z_]+)=(.*)$")
                        if variable then shell.setenv(variable, value) end
                    end
                end)
            end,
        },
    },
}
