//! `holdfast top`: how a server that runs is doing, in a terminal. It asks by commands, as any client could.

mod sample;
mod view;

use crate::import::{Address, Connection, Login};
use crossterm::{
    cursor::{Hide, MoveTo, Show},
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute, queue,
    style::{Attribute, Color, Print, SetAttribute, SetForegroundColor},
    terminal::{
        self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
        LeaveAlternateScreen,
    },
};
use sample::Sample;
use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    thread,
    time::{Duration, Instant},
};
use view::{Line, Tone, lines};

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which server, and how it is shown.
pub struct Request {
    /// Where the server listens.
    pub address: Address,
    /// Who asks.
    pub login: Login,
    /// Whether to end after one look.
    pub once: bool,
}

/// Shows the figures until the user ends it; the error says why it could not begin.
pub fn top(request: &Request) -> Result<(), String> {
    let mut watch = Watch { request, connection: None, before: None };
    // What is wrong from the start on is an error, and not a thing to wait for.
    let first = watch.look().map_err(|e| format!("cannot ask {}: {e}", request.address))?;
    let shown = match !request.once && io::stdout().is_terminal() {
        true => show(&mut watch, first),
        false => print(&mut watch),
    };
    match shown {
        // Whoever reads it has seen enough.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        shown => shown.map_err(|e| e.to_string()),
    }
}

/// A server, looked at again and again.
struct Watch<'a> {
    request: &'a Request,
    connection: Option<Connection>,
    before: Option<Sample>,
}

impl Watch<'_> {
    /// The figures of now, with what has changed since the look before.
    fn look(&mut self) -> io::Result<Vec<Line>> {
        let sample = self.sample().inspect_err(|_| self.connection = None)?;
        let before = self.before.as_ref().unwrap_or(&sample);
        let lines = lines(&self.request.address.to_string(), before, &sample);
        self.before = Some(sample);
        Ok(lines)
    }

    fn sample(&mut self) -> io::Result<Sample> {
        let Request { address, login, .. } = self.request;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(address.connect(PATIENCE)?.log_in(login)?),
        };
        Sample::take(connection)
    }
}

/// Prints plain lines: once, or each second.
fn print(watch: &mut Watch) -> io::Result<()> {
    loop {
        thread::sleep(PERIOD);
        let mut text = String::new();
        for Line { words, .. } in watch.look()? {
            text.push_str(&words);
            text.push('\n');
        }
        if !watch.request.once {
            text.push('\n');
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if watch.request.once {
            return Ok(());
        }
    }
}

/// The terminal while it shows figures; afterwards it is as it was.
struct Screen(io::Stdout);

impl Screen {
    fn open() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let mut screen = Screen(io::stdout());
        execute!(screen.0, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Shows as many lines as there is room for, each as far as there is.
    fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        queue!(self.0, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for (row, Line { words, tone }) in (0..rows).zip(lines) {
            let words: String = words.chars().take(columns.into()).collect();
            // Before it is written: behind a full line the cursor is still on its last character.
            queue!(self.0, MoveTo(0, row), Clear(ClearType::CurrentLine))?;
            match tone {
                Tone::Plain => queue!(self.0, Print(words))?,
                Tone::Title => queue!(self.0, SetAttribute(Attribute::Bold), Print(words))?,
                Tone::Good => queue!(self.0, SetForegroundColor(Color::Green), Print(words))?,
                Tone::Bad => queue!(
                    self.0,
                    SetAttribute(Attribute::Bold),
                    SetForegroundColor(Color::Red),
                    Print(words)
                )?,
            }
            queue!(self.0, SetAttribute(Attribute::Reset))?;
        }
        queue!(self.0, MoveTo(0, rows.min(lines.len() as u16)), Clear(ClearType::FromCursorDown))?;
        queue!(self.0, EndSynchronizedUpdate)?;
        self.0.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = execute!(self.0, Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Shows figures in the terminal until the user ends it.
fn show(watch: &mut Watch, mut shown: Vec<Line>) -> io::Result<()> {
    let mut screen = Screen::open()?;
    loop {
        screen.draw(&shown)?;
        if is_ended(&mut screen, &shown)? {
            return Ok(());
        }
        match watch.look() {
            Ok(lines) => shown = lines,
            Err(e) => {
                // What was known stays, below what is wrong.
                shown.retain(|line: &Line| line.tone != Tone::Bad && line.tone != Tone::Good);
                let words = format!("The server does not answer: {e}. Trying again. What follows is old.");
                shown.insert(0, Line { words, tone: Tone::Bad });
            }
        }
    }
}

/// Waits until the next look is due; whether the user ended it meanwhile.
fn is_ended(screen: &mut Screen, shown: &[Line]) -> io::Result<bool> {
    let next = Instant::now() + PERIOD;
    while event::poll(next.saturating_duration_since(Instant::now()))? {
        match event::read()? {
            Event::Key(key) if ends(&key) => return Ok(true),
            Event::Resize(..) => screen.draw(shown)?,
            _ => {}
        }
    }
    Ok(false)
}

fn ends(key: &KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (is_interrupt || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}
